"""Visits of users: sessions of clicks by event time, against a plain computation."""

import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cutwater as cw

Example = Callable[[str], ModuleType]
GAP = timedelta(minutes=30)
Click = tuple[str, str, datetime]


def _visits(clicks: list[Click]) -> list[tuple[Any, ...]]:
    """The truth: the clicks of each user in order, cut where nothing came for half an hour."""
    by_user: dict[str, list[list[Click]]] = {}
    for click in sorted(clicks, key=lambda click: click[2]):
        visits = by_user.setdefault(click[0], [])
        if visits and click[2] - visits[-1][-1][2] <= GAP:
            visits[-1].append(click)
        else:
            visits.append([click])
    return sorted(
        (
            user,
            len(visit),
            visit[0][1],
            visit[-1][1],
            (visit[-1][2] - visit[0][2]) // timedelta(seconds=1),
            any(page == "/paid" for _, page, _ in visit),
            visit[0][2],
            visit[-1][2] + GAP,
        )
        for user, visits in by_user.items()
        for visit in visits
    )


def _out_of_order(clicks: list[Click], seed: int) -> list[Click]:
    """Each click up to a minute later than it happened."""
    chance = random.Random(seed)
    return sorted(clicks, key=lambda click: click[2] + timedelta(seconds=chance.randrange(60)))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_visits_are_what_a_look_at_all_clicks_gives(example: Example, parallelism: int) -> None:
    clicks = example("session_clicks")
    truth = _visits(clicks.made_up_clicks())
    got = cw.testing.run(clicks.pipeline, {}, parallelism=parallelism)
    assert sorted(map(tuple, got["visits"])) == truth
    assert len(truth) > 20, "several visits of a user"
    assert got["late"] == []


@pytest.mark.parametrize("seed", range(4))
def test_clicks_out_of_order_and_a_failure_in_the_middle_change_nothing(example: Example, seed: int) -> None:
    clicks = example("session_clicks")
    rows = _out_of_order(clicks.made_up_clicks(seed=seed), seed)
    cut, died = len(rows) // 3, len(rows) // 2
    script = cw.testing.script(rows[:cut], cw.testing.CHECKPOINT, rows[cut:died], cw.testing.FAIL, rows[died:])
    order = random.Random(seed)
    got = cw.testing.run(clicks.pipeline, {"clicks": script}, parallelism=2, choose=order.randrange)
    assert sorted(map(tuple, got["visits"])) == _visits(rows)
    assert got["late"] == []


def test_clicks_are_read_from_the_files_that_are_named(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks = [("/", "2024-05-01T10:00:00Z"), ("/paid", "2024-05-01T12:10:00+02:00")]
    lines = [json.dumps({"user": "ada", "page": page, "at": at}) for page, at in clicks]
    (tmp_path / "some.json").write_text("\n".join(lines))
    module = example("session_clicks")
    monkeypatch.setattr(module, "INPUT", str(tmp_path / "*.json"))
    (visit,) = cw.testing.run(module.pipeline, {})["visits"]
    assert (visit.user, visit.clicks, visit.entry, visit.exit, visit.seconds, visit.paid) == (
        "ada", 2, "/", "/paid", 600, True,
    )  # fmt: skip


def test_a_click_behind_the_end_of_its_visit_is_not_lost(example: Example) -> None:
    clicks = example("session_clicks")
    morning, noon = clicks.MORNING, clicks.MORNING + timedelta(hours=4)
    late = ("ada", "/paid", morning + timedelta(minutes=5))
    script = cw.testing.script([("ada", "/", morning), ("bob", "/", noon)], cw.testing.ADVANCE("1s"), [late])
    got = cw.testing.run(clicks.pipeline, {"clicks": script})
    assert sorted((row.user, row.clicks) for row in got["visits"]) == [("ada", 1), ("bob", 1)]
    assert [tuple(row) for row in got["late"]] == [late]
