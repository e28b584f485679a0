"""Work with many splits grows as their number does. Counted in comparisons of their names: a time would say nothing on a
busy machine."""

import json
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import cutwater as cw
from cutwater.checkpoint import reservations, restore
from cutwater.checkpoint.completed import StateOwner
from cutwater.checkpoint.reservations import ReservedSource, latest_positions
from cutwater.checkpoint.restore import plan_restore
from cutwater.checkpoint.snapshot import StoredOperator, SubtaskSnapshot
from cutwater.connectors.source import SourceContext
from cutwater.job import discovery
from cutwater.job.deployment import Deployment
from cutwater.job.discovery import Discovery
from cutwater.subtask import source_input
from cutwater.subtask.source_input import SourceInput
from tests.unit.checkpoint.checkpoints import completed, shape

MANY = 2000


class Name(str):
    """A split's name that counts how often it is compared with another."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)  # type: ignore[no-any-return]

    __hash__ = str.__hash__


def entries(n: int) -> list[Any]:
    return [{"split": split, "position": split * 10} for split in range(n)]


def restore_at_another_parallelism() -> None:
    parts = ({"splits": entries(MANY)[index::2]} for index in range(2))
    snapshots = tuple(
        SubtaskSnapshot("src", index, False, (StoredOperator("src", part, ()),)) for index, part in enumerate(parts)
    )
    plan = plan_restore(completed(5, snapshots=snapshots), [shape("src", ("src",), 3)], 128, {})
    assert sum(len(each.operators[0].inline[0]["splits"]) for each in plan.values()) == MANY


def find_the_latest_reserved_positions() -> None:
    source = ReservedSource(StateOwner("kafka", "kafka"), tuple(entries(MANY)), begun=True)
    reserved = {"uid": "src", "attempt": 1, "number": 1, "positions": entries(MANY)}
    assert len(latest_positions(1, {"src": source}, [reserved])["src"].positions) == MANY


def assign_to_a_subtask() -> None:
    assigned = SourceInput(cw.sequence(1), SourceContext("job", "src", 0, 1, 1), entries(MANY))
    assigned.add(entries(MANY + 1))
    assert len(assigned.positions()) == MANY + 1


def find_anew() -> None:
    source = cw.sequence(None)
    found = Discovery(
        {"src": source}, {"src": 2}, Deployment(), send=lambda subtask, message: None, log=lambda line: None
    )
    for _ in range(2):
        found._deal("src", range(MANY))


@pytest.mark.parametrize(
    ("module", "work"),
    [
        (restore, restore_at_another_parallelism),
        (reservations, find_the_latest_reserved_positions),
        (source_input, assign_to_a_subtask),
        (discovery, find_anew),
    ],
)
def test_many_splits_take_work_in_proportion_to_them(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, work: Callable[[], None]
) -> None:
    names: list[Name] = []

    def named(split: Any, **settings: Any) -> Name:
        names.append(Name(json.dumps(split, **settings)))
        return names[-1]

    monkeypatch.setattr(module, "json", SimpleNamespace(dumps=named, loads=json.loads))
    Name.compared = 0
    work()
    assert MANY <= len(names) <= 3 * MANY, "this is where splits get the names that are counted"
    assert Name.compared <= 3 * MANY
