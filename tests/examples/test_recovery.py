"""Recovery as if nothing had happened, and what the three guarantees make of one failure."""

import random
from collections import defaultdict
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import cutwater as cw

Example = Callable[[str], ModuleType]
CHECKPOINT, FAIL = cw.testing.CHECKPOINT, cw.testing.FAIL
NUMBERS = list(range(60))


def _by_account(rows: list[Any]) -> dict[str, list[tuple[int, int]]]:
    found = defaultdict(list)
    for row in rows:
        found[row.account].append((row.bookings, row.balance))
    return dict(found)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_every_balance_comes_out_as_if_nothing_had_happened(example: Example, parallelism: int) -> None:
    pipeline = example("recovery").pipeline
    undisturbed = cw.testing.run(pipeline, {"numbers": NUMBERS}, parallelism=parallelism)
    failing = cw.testing.script(
        NUMBERS[:10],
        FAIL,
        NUMBERS[10:20],
        CHECKPOINT,
        NUMBERS[20:30],
        FAIL,
        NUMBERS[30:45],
        CHECKPOINT,
        FAIL,
        NUMBERS[45:],
    )
    disturbed = cw.testing.run(pipeline, {"numbers": failing}, parallelism=parallelism)
    assert _by_account(disturbed["out"]) == _by_account(undisturbed["out"])
    assert sum(len(rows) for rows in _by_account(disturbed["out"]).values()) == len(NUMBERS)


@pytest.mark.parametrize("seed", range(5))
def test_no_order_of_events_makes_a_balance_wrong(example: Example, seed: int) -> None:
    pipeline = example("recovery").pipeline
    failing = cw.testing.script(NUMBERS[:20], CHECKPOINT, NUMBERS[20:40], FAIL, NUMBERS[40:])
    order = random.Random(seed)
    got = cw.testing.run(pipeline, {"numbers": failing}, parallelism=2, choose=order.randrange)
    assert _by_account(got["out"]) == _by_account(cw.testing.run(pipeline, {"numbers": NUMBERS})["out"])


SEEDS = range(1, 5)


def test_exactly_once_counts_views_and_visitors_right_over_a_failure(example: Example) -> None:
    guarantees = example("three_guarantees")
    for seed in SEEDS:
        assert guarantees.run_and_fail("exactly_once", seed) == guarantees.truth()


def test_at_least_once_counts_some_views_twice_but_no_visitor(example: Example) -> None:
    guarantees = example("three_guarantees")
    truth = guarantees.truth()
    views_too_many = 0
    for seed in SEEDS:
        got = guarantees.run_and_fail("at_least_once", seed)
        assert {page: visitors for page, (_, visitors) in got.items()} == {page: n for page, (_, n) in truth.items()}
        assert all(got[page][0] >= truth[page][0] for page in truth), "at least once lost a view"
        views_too_many += sum(got[page][0] - truth[page][0] for page in truth)
    assert views_too_many > 0


def test_at_most_once_loses_views_and_counts_none_twice(example: Example) -> None:
    guarantees = example("three_guarantees")
    truth = guarantees.truth()
    for seed in SEEDS:
        got = guarantees.run_and_fail("at_most_once", seed)
        assert all(got[page][0] <= truth[page][0] for page in truth)
        assert sum(got[page][0] for page in truth) < sum(views for views, _ in truth.values())


def test_the_three_results_stand_side_by_side(example: Example, capsys: pytest.CaptureFixture[str]) -> None:
    example("three_guarantees").main()
    table = capsys.readouterr().out.splitlines()
    results = {line.split()[0]: line.split()[1:] for line in table[1:]}
    assert list(results) == ["truth", "at_most_once", "at_least_once", "exactly_once"]
    assert results["exactly_once"] == results["truth"]
    assert results["at_least_once"] != results["truth"] != results["at_most_once"]
