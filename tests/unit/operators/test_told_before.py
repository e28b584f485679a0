"""Behind a restore at another parallelism: what is late for a key is told by how far the old subtask of that key had come."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.checkpoint.fit import WATERMARKS
from cutwater.flow.hashing import hash_columns, key_groups
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.operators.kept_windows import TABLE
from cutwater.operators.operator import Operator, OperatorContext
from cutwater.operators.window_aggregate import RAW, EventTimeWindows
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

WITH_LATENESS: dict[str, Callable[[cw.Stream, cw.Stream], cw.Stream]] = {
    "late_columns": lambda a, b: held_for_10(a).agg(ts=cw.sum("ts")),
    "late_rows": lambda a, b: held_for_10(a).process(sum_of_window, "k long, ts long"),
    "late_merged": lambda a, b: held_for_10(a).agg(ts=Sum()),
    "late_values": lambda a, b: held_for_10(a).reduce(lambda x, y: (x.k, x.ts + y.ts)),
}
"""What a window tells is the sum of its times."""

EARLY: dict[str, Callable[[cw.Stream, cw.Stream], cw.Stream]] = {
    "early_columns": lambda a, b: held_for_10(a, "1s").agg(ts=cw.sum("ts")),
    "early_rows": lambda a, b: held_for_10(a, "1s").process(sum_of_window, "k long, ts long"),
    "early_merged": lambda a, b: held_for_10(a, "1s").agg(ts=Sum()),
    "early_values": lambda a, b: held_for_10(a, "1s").reduce(lambda x, y: (x.k, x.ts + y.ts)),
    "early_session": lambda a, b: (
        a.key_by("k").window(cw.session("10ms"), allowed_lateness="30ms", early="1s").agg(ts=cw.sum("ts"))
    ),
}


class Sum(cw.AggregateFunction):
    accumulator_type = "long"
    result_type = "long"

    def create(self) -> Any:
        return 0

    def add(self, accumulator: Any, row: Any) -> Any:
        return accumulator + row.ts

    def merge(self, a: Any, b: Any) -> Any:
        return a + b

    def result(self, accumulator: Any) -> Any:
        return accumulator


def held_for_10(a: cw.Stream, early: str | None = None) -> Any:
    return a.key_by("k").window(cw.sliding("30ms", "10ms"), allowed_lateness="10ms", early=early)


def sum_of_window(rows: Any, ctx: Any) -> Any:
    return [(ctx.key, sum(row.ts for row in rows))]


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
        operator = {**JOINS, **SESSIONS, **BY_THE_CLOCK, **WITH_LATENESS, **EARLY}[which](a, b)._inputs[0].draft.body
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
        port = RAW if isinstance(self.operator, EventTimeWindows) else 0
        self.operator.process(batch_of(list(records), SIDES[0], "test"), port, self.out)

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

    def told(self) -> dict[tuple[Any, int], Any]:
        """By key and end what was told last."""
        sums = [value for batch in self.out.batches for value in batch.column("ts").to_pylist()]
        return dict(zip(self.rows_with_end(), sums, strict=True))


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
    assert _times(operator) == {"watermarks": [FAST_TIME - 1], "told": OF_TWO["told"]}
    operator.operator.checkpoint_ended(CheckpointId(1), completed=False)
    operator.watermark(FAST_TIME)
    assert _times(operator) == {"watermarks": [FAST_TIME]}


def _times(operator: Restored) -> dict[str, Any]:
    [inline] = operator.stored().inline
    return {name: value for name, value in inline.items() if name in WATERMARKS}


@pytest.mark.parametrize("which", BY_THE_CLOCK)
def test_by_the_clock_a_record_of_a_key_whose_windows_were_told_is_in_one_that_was_not(which: str) -> None:
    """Though the clock of the machine is behind that of the old subtask."""
    behind = of_two(which, twice=False)
    behind.left((FAST, 1), (SLOW, 1))
    after(behind.operator.end_of_input(behind.out, drain=True))
    ends = {key: [row[-1] for row in behind.rows_with_end() if row[0] == key] for key in (FAST, SLOW)}
    assert min(ends[FAST]) > FAST_TIME
    assert SLOW_TIME < max(ends[SLOW]) < FAST_TIME


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("late", [(), (75,)], ids=["as_it_was", "changed"])
@pytest.mark.parametrize("which", WITH_LATENESS)
def test_windows_that_lateness_held_no_longer_are_not_told_again(
    which: str, late: tuple[int, ...], twice: bool
) -> None:
    """Their first panes are gone; those that it still held are told once more, with all that is in them."""
    alone = Restored(which)
    alone.left(*((FAST, time) for time in (55, 65, 75, 85, 95)))
    alone.watermark(FAST_TIME)
    behind = of_two(which, alone.stored(), twice=twice)
    alone.operator.checkpoint_ended(CheckpointId(1), completed=False)
    for each in (alone, behind):
        each.left(*((FAST, time) for time in late))
    behind.left((SLOW, 75))
    for each in (alone, behind):
        each.watermark(1000)
    held = {of: content for of, content in alone.told().items() if of[1] - 1 + 10 > FAST_TIME}
    assert sorted(end for _, end in held) == [100, 110, 120]
    assert behind.told() == {**held, (SLOW, 80): 75, (SLOW, 90): 75, (SLOW, 100): 75}
    assert behind.out.side == {}


@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("which", EARLY)
def test_what_was_over_for_the_old_subtask_of_a_key_is_not_told_early(which: str, twice: bool) -> None:
    """Though allowed lateness holds it, and the own time is not there yet."""
    alone = Restored(which)
    alone.left((FAST, 75), (FAST, 95))
    alone.watermark(FAST_TIME)
    behind = of_two(which, alone.stored(), twice=twice)
    alone.operator.checkpoint_ended(CheckpointId(1), completed=False)
    behind.left((SLOW, 75))
    after(behind.operator.on_processing_time(1000, behind.out))
    early = behind.rows_with_end()
    assert {key for key, end in early if end - 1 <= FAST_TIME} == {SLOW}
    assert {key for key, end in early if end - 1 > FAST_TIME} == {FAST}


def test_a_record_is_not_kept_in_windows_that_were_over_for_its_key() -> None:
    behind = of_two("late_values", twice=False)
    behind.left((FAST, 75), (SLOW, 75))
    kept = [row for batch in behind.stored().batches(TABLE) for row in batch.to_pylist()]
    assert sorted((row["k"], row["window_start"]) for row in kept) == sorted(
        [(FAST, 70), (SLOW, 50), (SLOW, 60), (SLOW, 70)]
    )
