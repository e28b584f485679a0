"""Behind a restore at another parallelism: what is late for a key is told by how far the old subtask of that key had come."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.flow.hashing import hash_columns, key_groups
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.operators.operator import Operator, OperatorContext
from cutwater.rows import batch_of
from cutwater.schema import arrow_schema
from tests.unit.operators.collecting import Collected, NoDriver, after
from tests.unit.operators.test_keyed_process import Stored

SIDES = (arrow_schema("k long, ts long"), arrow_schema("ts long, j long"))
"""The key has another name, and another place, on the right."""
SLOW_TIME, FAST_TIME = 50, 100
OF_TWO = {"watermarks": [FAST_TIME, SLOW_TIME], "told": [[0, 63, FAST_TIME]]}
_GROUPS = key_groups(hash_columns(batch_of([(k, 0) for k in range(20)], SIDES[0], "test"), ["k"]), 128).tolist()
FAST = next(key for key, group in enumerate(_GROUPS) if group <= 63)
SLOW = next(key for key, group in enumerate(_GROUPS) if group > 63)

JOINS: dict[str, Callable[[cw.Stream, cw.Stream], cw.Stream]] = {
    "interval": lambda a, b: a.key_by("k").join(b.key_by("j"), within="10ms"),
    "window": lambda a, b: a.key_by("k").window(cw.tumbling("10ms")).join(b.key_by("j")),
    "sliding": lambda a, b: a.key_by("k").window(cw.sliding("20ms", "10ms")).join(b.key_by("j")),
}
SESSIONS: dict[str, Callable[[cw.Stream, cw.Stream], cw.Stream]] = {
    "session": lambda a, b: a.key_by("k").window(cw.session("10ms")).agg(n=cw.count()),
    "lateness": lambda a, b: a.key_by("k").window(cw.session("10ms"), allowed_lateness="30ms").agg(n=cw.count()),
    "clock": lambda a, b: a.key_by("k").window(cw.session("10ms"), time="processing").agg(n=cw.count()),
}


BY_THE_CLOCK: dict[str, Callable[[cw.Stream, cw.Stream], cw.Stream]] = {
    "rows": lambda a, b: a.key_by("k").window(cw.tumbling("40ms"), time="processing").process(key_of_window, "k long"),
    "values": lambda a, b: a.key_by("k").window(cw.sliding("40ms", "20ms"), time="processing").reduce(lambda x, y: y),
    "columns": lambda a, b: a.key_by("k").window(cw.tumbling("40ms"), time="processing").agg(n=cw.max("ts")),
}


def key_of_window(rows: Any, ctx: Any) -> Any:
    return [(ctx.key,)]


class Restored:
    """An operator that goes on from ``stored``, with ``inline`` instead of what that holds."""

    def __init__(self, which: str, stored: Stored | None = None, inline: Any = None) -> None:
        env = cw.Environment(checkpointing=None)
        a, b = (
            env.read(cw.from_rows([], each), uid=uid).with_timestamps("ts")
            for uid, each in zip("ab", SIDES, strict=True)
        )
        operator = {**JOINS, **SESSIONS, **BY_THE_CLOCK}[which](a, b)._inputs[0].draft.body
        assert isinstance(operator, Operator)
        if stored is not None and inline is not None:
            stored.inline = (inline,)
        operator.open(
            OperatorContext(
                job="job", uid="o", name="op", subtask=0, parallelism=1, max_parallelism=128, attempt=1, incarnation="i",
                key_groups=KeyGroupRange(0, 127), backend=cw.Memory(), now=lambda: 0, driver=NoDriver(), restored=stored,
            )
        )  # fmt: skip
        self.operator = operator
        self.out = Collected()

    def left(self, *records: tuple[int, int]) -> None:
        self.operator.process(batch_of(list(records), SIDES[0], "test"), 0, self.out)

    def right(self, *records: tuple[int, int]) -> None:
        """Key and time, as on the left."""
        self.operator.process(batch_of([(time, key) for key, time in records], SIDES[1], "test"), 1, self.out)

    def watermark(self, time: int) -> None:
        after(self.operator.on_watermark(time, self.out))

    def stored(self) -> Stored:
        return Stored(self.operator)

    def rows_with_end(self) -> list[tuple[Any, int]]:
        """Of each result the key, and when its window ends."""
        tables = [pa.Table.from_batches([batch]) for batch in self.out.batches]
        ends = [table.column("window_end").cast(pa.int64()).to_pylist() for table in tables]
        keys = [table.column("k").to_pylist() for table in tables]
        return [(key, end // 1000) for of in zip(keys, ends, strict=True) for key, end in zip(*of, strict=True)]


def of_two(which: str, stored: Stored | None = None, *, twice: bool) -> Restored:
    """Behind two old subtasks; ``twice``: and behind a checkpoint that was taken right then."""
    restored = Restored(which, stored or Restored(which).stored(), OF_TWO)
    return Restored(which, restored.stored()) if twice else restored


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("which", JOINS)
def test_a_join_gives_away_what_was_late_for_the_old_subtask_of_its_key(which: str, twice: bool) -> None:
    join = of_two(which, twice=twice)
    join.left((FAST, 60), (SLOW, 60), (FAST, 125), (SLOW, 45))
    join.right((FAST, 61), (SLOW, 61), (FAST, 126), (SLOW, 30))
    assert join.out.side["late"][0] == (FAST, 60)
    assert join.out.side["late_right"][0] == (61, FAST)
    assert {key for key, *_ in join.out.side["late"][1:]} <= {SLOW}
    assert {(row[0], row[-1]) for row in join.out.rows()} == {(SLOW, 61), (FAST, 126)}


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
def test_a_window_that_was_over_for_the_old_subtask_of_a_key_has_no_pairs_of_it(twice: bool) -> None:
    """A cut between two steps holds rows of windows that are over."""
    before = Restored("sliding")
    before.left((FAST, 95), (SLOW, 95))
    join = of_two("sliding", before.stored(), twice=twice)
    join.right((FAST, 97), (SLOW, 97))
    starts = [(key, start.microsecond // 1000) for key, start, *_ in join.out.rows()]
    assert sorted(starts) == sorted([(FAST, 90), (SLOW, 80), (SLOW, 90)])
    assert join.out.side == {}


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("which", ["session", "lateness"])
def test_sessions_end_up_as_if_the_old_subtasks_had_gone_on(which: str, twice: bool) -> None:
    """A record that is late, ones that allowed lateness or the gap let in, and one behind everything."""
    expected: list[Any] = []
    late: list[Any] = []
    alone = {FAST: Restored(which), SLOW: Restored(which)}
    for key, time in ((FAST, FAST_TIME), (SLOW, SLOW_TIME)):
        alone[key].watermark(time)
    both = of_two(which, twice=twice)
    for time in (60, 78, 95, 130):
        for key in (FAST, SLOW):
            both.left((key, time))
            alone[key].left((key, time))
    for each in (both, *alone.values()):
        each.watermark(1000)
    for each in alone.values():
        expected += each.out.rows()
        late += each.out.side.get("late", [])
    assert (FAST, 60) in late
    assert (SLOW, 60) not in late
    assert sorted(both.out.side["late"]) == sorted(late)
    assert sorted(both.out.rows()) == sorted(expected)


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
def test_by_the_clock_nothing_is_late(twice: bool) -> None:
    """The clock here is behind that of the old subtasks."""
    sessions = of_two("clock", twice=twice)
    sessions.left((FAST, 0), (SLOW, 0))
    after(sessions.operator.end_of_input(sessions.out, drain=True))
    assert sorted(row[0] for row in sessions.out.rows()) == sorted([FAST, SLOW])
    assert sessions.out.side == {}


@pytest.mark.parametrize("which", [*JOINS, "session", "lateness"])
def test_it_is_stored_until_the_own_time_is_there(which: str) -> None:
    operator = of_two(which, twice=False)
    operator.watermark(FAST_TIME - 1)
    assert operator.stored().inline == ({"watermarks": [FAST_TIME - 1], "told": OF_TWO["told"]},)
    operator.operator.checkpoint_ended(CheckpointId(1), completed=False)
    operator.watermark(FAST_TIME)
    assert operator.stored().inline == ({"watermarks": [FAST_TIME]},)


@pytest.mark.parametrize("which", BY_THE_CLOCK)
def test_by_the_clock_a_record_of_a_key_whose_windows_were_told_is_in_one_that_was_not(which: str) -> None:
    """Though the clock of the machine is behind that of the old subtask."""
    behind = of_two(which, twice=False)
    behind.left((FAST, 1), (SLOW, 1))
    after(behind.operator.end_of_input(behind.out, drain=True))
    ends = {key: [row[-1] for row in behind.rows_with_end() if row[0] == key] for key in (FAST, SLOW)}
    assert min(ends[FAST]) > FAST_TIME
    assert SLOW_TIME < max(ends[SLOW]) < FAST_TIME
