"""A key with very many rows: its pairs are made in parts that have room, and what is given out at once is bounded."""

import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.operators import join, joined_rows
from cutwater.operators.joined_rows import JoinedRows
from cutwater.operators.operator import Operator, OperatorContext
from cutwater.operators.turn import Turn
from cutwater.rows import batch_of
from cutwater.state import memory_join
from cutwater.state.backend import StateBackend
from cutwater.state.tables import TooManyPairs
from tests.unit.operators.collecting import Collected, NoDriver

ROOM = 20_000
ROW = "k long, ts long, t string"
HOT, TEXT = 200, "x" * 80
JOINS: dict[str, Callable[[cw.KeyedStream, cw.KeyedStream], cw.Stream]] = {
    "equi": lambda a, b: a.join(b),
    "interval": lambda a, b: a.join(b, within="10ms"),
    "window": lambda a, b: a.window(cw.sliding("20ms", "10ms")).join(b),
}
Record = tuple[int | None, int, str]


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_rows, "PAIRS_BYTES", ROOM)
    monkeypatch.setattr(join, "ENOUGH_BYTES", 4 * ROOM)
    monkeypatch.setattr(memory_join, "COMPARED_PAIRS", 16)  # so many are always made at once


@pytest.fixture(params=["memory", "incremental", "small cache", "files"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> StateBackend:
    local = [str(tmp_path)]
    settings: dict[str, StateBackend] = {
        "memory": cw.Memory(),
        "incremental": cw.Memory(incremental=True),
        "small cache": cw.RocksDB(cache=1000, local_directories=local),
        "files": cw.RocksDB(incremental=True, cache="1MB", local_directories=local),
    }
    return settings[request.param]


class Joining:
    """A join on its own, fed as a subtask feeds it: what it leaves of a batch comes again."""

    def __init__(self, kind: str, backend: StateBackend, turn: Turn) -> None:
        env = cw.Environment(checkpointing=None)
        a, b = (env.read(cw.from_rows([], ROW), uid=uid).with_timestamps("ts") for uid in ("a", "b"))
        operator = JOINS[kind](a.key_by("k"), b.key_by("k"))._inputs[0].draft.body
        assert isinstance(operator, Operator)
        self.schema, self.turn, self._operator = a.schema, turn, operator
        operator.open(
            OperatorContext(
                job="job", uid="j", name="join", subtask=0, parallelism=1, max_parallelism=128, attempt=1, incarnation="i",
                key_groups=KeyGroupRange(0, 127), backend=backend, now=lambda: 0, driver=NoDriver(), turn=turn,
            )
        )  # fmt: skip
        self.given: list[list[pa.RecordBatch]] = []
        """Batches of pairs, for each call."""

    def process(self, port: int, records: Iterable[Record]) -> None:
        batch = batch_of(list(records), self.schema, "test")
        while batch.num_rows:
            out = Collected()
            self._operator.process(batch, port, out)
            self.given.append(out.batches)
            batch = batch.slice(batch.num_rows - self.turn.end())

    def pairs(self) -> list[tuple[Any, ...]]:
        """Text of the left record, of the right one."""
        tables = [batch.select(["t", "t_right"]) for given in self.given for batch in given]
        return [tuple(row.values()) for batch in tables for row in batch.to_pylist()]


def some(side: str, seed: int) -> list[Record]:
    """Most are of one key."""
    chance = random.Random(seed)
    return [
        (chance.choice([0, 0, 0, 0, 1, 2, None]), chance.choice([0, 5, 14, 25]), f"{side}{n:04}{TEXT}")
        for n in range(HOT)
    ]


def expected(kind: str, left: list[Record], right: list[Record]) -> list[tuple[str, str]]:
    times = {
        "equi": lambda a, b: 1,
        "interval": lambda a, b: int(abs(a - b) <= 10),
        "window": lambda a, b: sum(start <= min(a, b) and max(a, b) < start + 20 for start in range(-10, 30, 10)),
    }[kind]
    return sorted(
        (a, b)
        for key, time, a in left
        for other, when, b in right
        for _ in range(times(time, when) if key is not None and key == other else 0)
    )


@pytest.mark.parametrize("kind", JOINS)
@pytest.mark.parametrize("in_turn", [False, True], ids=["alone", "in turn"])
def test_pairs_of_a_hot_key_come_in_parts_and_none_is_lost_or_doubled(
    kind: str, backend: StateBackend, *, in_turn: bool
) -> None:
    joining = Joining(kind, backend, Turn(float, 1) if in_turn else Turn())
    left, right = some("l", 1), some("r", 2)
    for at in range(0, HOT, HOT // 2):
        joining.process(0, left[at : at + HOT // 2])
        joining.process(1, right[at : at + HOT // 2])
    assert sorted(joining.pairs()) == expected(kind, left, right)
    row = 2 * (len(TEXT) + 40)
    sizes = [[batch.nbytes for batch in given] for given in joining.given]
    # One record has all of its pairs at once.
    assert max(map(max, filter(None, sizes))) < 2 * ROOM + HOT * row
    if in_turn:
        assert len(joining.given) > 4
        assert max(map(sum, sizes)) < 6 * ROOM + HOT * row
    else:
        assert len(joining.given) == 4
        assert max(map(sum, sizes)) > 8 * ROOM


WIDE = "y" * 5_000


@pytest.mark.parametrize("kind", JOINS)
def test_rows_that_are_far_wider_than_most_count_as_what_they_are(kind: str, backend: StateBackend) -> None:
    """Those of a key of which many are asked for, or which has many: the pairs of a whole batch would not fit into a column."""
    joining = Joining(kind, backend, Turn())
    joining.process(0, [(n, 0, "narrow") for n in range(10, 2000)])
    joining.process(0, [(1, 0, WIDE), *[(2, 0, "narrow")] * 40])
    joining.process(1, [(1, 0, "hot")] * HOT)
    joining.process(1, [*[(2, 0, WIDE)] * 20, *[(n, 0, "narrow") for n in range(10, 2000)]])
    windows = 2 if kind == "window" else 1
    assert len(joining.pairs()) == windows * (HOT + 20 * 40 + 1990)
    sizes = [batch.nbytes for given in joining.given for batch in given]
    assert sum(sizes) > windows * 4_000_000
    # One record has all of its pairs at once.
    assert max(sizes) < 2 * ROOM + 40 * len(WIDE) * 1.1


def test_one_record_has_all_of_its_pairs_whatever_room_there_is(backend: StateBackend) -> None:
    joining = Joining("equi", backend, Turn())
    joining.process(0, [(0, 0, f"{n:04}{TEXT}") for n in range(1000)])
    joining.process(1, [(0, 0, "r"), (0, 0, "s")])
    assert len(joining.pairs()) == 2000
    assert [len(given) for given in joining.given] == [0, 2]


def test_a_batch_whose_pairs_have_room_is_joined_at_once(backend: StateBackend) -> None:
    joining = Joining("equi", backend, Turn(float, 1))
    joining.process(0, [(n, 0, "a") for n in range(100)])
    joining.process(1, [(n, 0, "b") for n in range(100)])
    assert [len(given) for given in joining.given] == [0, 1]


def test_rows_that_are_joined_at_once_follow_what_the_last_ones_made() -> None:
    rows = JoinedRows()
    assert rows.next(100_000) == 100_000
    rows.failed(100_000, TooManyPairs(0.01))
    assert rows.next(99_000) == 1000
    rows.joined(1000, ROOM // 2)
    assert rows.next(99_000) == 1000
    rows.joined(1000, ROOM // 8)
    assert rows.next(99_000) == 2000
    rows.joined(2000, 2 * ROOM)
    assert rows.next(99_000) == 500
    rows.joined(10, 0)
    assert rows.next(99_000) == 500, "so few say nothing"


def test_rows_become_fewer_until_there_is_one() -> None:
    rows = JoinedRows()
    tried = sys.maxsize
    while (now := rows.next(1 << 17)) > 1:
        assert now < tried
        tried = now
        rows.failed(now, TooManyPairs(0.0))
    rows.joined(1, 100 * ROOM)
    assert rows.next(1 << 17) == 1
    rows.joined(1, 10)
    assert rows.next(1 << 17) == 2
