"""with_timestamps: a watermark for each split, idle splits, and the same lateness after a restore."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from cutwater.errors import DataError
from cutwater.flow.event_time import EventTime
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.flow.watermarks import MAX_WATERMARK, MIN_WATERMARK, Milliseconds
from cutwater.operators.operator import ALL_INPUT, OperatorContext
from cutwater.operators.timestamps import WithTimestamps
from cutwater.rows import batch_of
from cutwater.schema import arrow_schema
from cutwater.state.memory import Memory
from tests.unit.operators.collecting import Collected, NoDriver, after

SCHEMA = arrow_schema("ts long")


class Stored:
    def __init__(self, *operators: WithTimestamps) -> None:
        self.inline: Sequence[Any] = [operator.snapshot(CheckpointId(1)).inline for operator in operators]

    def tables(self) -> Sequence[str]:
        return ()

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        raise AssertionError(table)


class Harness:
    def __init__(
        self,
        *,
        behind_source: bool = True,
        idle_after: str | None = None,
        restored: Any = None,
        started: bool = True,
    ) -> None:
        self.now: Milliseconds = 0
        self.out = Collected()
        self.operator = WithTimestamps(
            EventTime(("ts",)), out_of_orderness=10, idle_after=None if idle_after is None else 1_000
        )
        self.operator.output_schema([SCHEMA])
        self.operator.open(
            OperatorContext(
                job="j", uid="t1", name="with_timestamps", subtask=0, parallelism=1, max_parallelism=128, attempt=1,
                incarnation="1f3a", key_groups=KeyGroupRange(0, 127), backend=Memory(), now=lambda: self.now,
                driver=NoDriver(), behind_source=behind_source, restored=restored,
            )
        )  # fmt: skip
        if started and not behind_source:
            self.operator.on_start()

    def splits(self, *names: str) -> list[Milliseconds | None]:
        self.operator.on_splits(names, self.out)
        return self.taken()

    def feed(self, split: str, *times: int | None) -> list[Milliseconds | None]:
        self.operator.split = split
        self.operator.process(batch_of([(time,) for time in times], SCHEMA, "test"), 0, self.out)
        return self.taken()

    def clock(self, now: Milliseconds) -> list[Milliseconds | None]:
        self.now = now
        after(self.operator.on_processing_time(now, self.out))
        return self.taken()

    def asked(self, *splits: str, in_vain: bool = True) -> list[Milliseconds | None]:
        self.operator.on_asked(splits, self.out, in_vain=in_vain)
        return self.taken()

    def taken(self) -> list[Milliseconds | None]:
        taken, self.out.times = self.out.times, []
        return taken


@pytest.mark.parametrize("idle_after", [None, "1s"])
def test_a_source_does_not_rest_before_it_is_known_what_it_reads(idle_after: str | None) -> None:
    """The clock calls all operators of a chain when one of them has a timer: a combine that was restored with rows, say."""
    harness = Harness(idle_after=idle_after)
    assert harness.clock(5_000) == [], "nobody would wait for its first records, and they would be late"
    assert harness.splits("a") == []
    assert harness.feed("a", 100) == [89]


def test_the_watermark_stays_behind_the_latest_record_by_what_may_be_out_of_order() -> None:
    harness = Harness(behind_source=False)
    assert harness.feed("", 100, 50) == [89], "a record of 90 is still in time"
    assert harness.feed("", 95) == []
    assert harness.feed("", 200) == [189]
    assert harness.out.rows() == [(100,), (50,), (95,), (200,)], "records pass unchanged"


def test_the_slowest_split_counts_and_one_that_ended_does_not() -> None:
    harness = Harness()
    assert harness.splits("a", "b") == []
    assert harness.feed("a", 100) == []
    assert harness.feed("b", 50) == [39]
    assert harness.feed("b", 300) == [89]
    assert harness.splits("b") == [289]
    assert harness.splits("b", "c") == []
    assert harness.feed("b", 400) == [], "a new split may bring older records"


def test_a_subtask_without_splits_holds_nobody_back() -> None:
    harness = Harness()
    assert harness.splits() == [None]
    assert harness.splits("a") == [MIN_WATERMARK], "now it may bring anything"
    assert harness.feed("a", 100) == [89]
    assert harness.splits() == [None]


def test_a_silent_split_is_idle_after_a_while_and_active_with_its_next_record() -> None:
    harness = Harness(idle_after="1s")
    harness.splits("a", "b")
    harness.feed("a", 100)
    assert harness.operator.next_timer() == 1000
    harness.now = 500
    harness.feed("a", 200)
    assert harness.asked("b") == [], "it may take its time"
    assert harness.clock(1000) == [], "nobody asked it since"
    assert harness.asked("a", "b") == [189], "b is idle"
    assert harness.clock(1500) == []
    assert harness.operator.next_timer() is None
    assert harness.asked("a", "b") == [None], "all are"
    assert harness.feed("b", 150) == [189], "active, though no further"
    assert harness.feed("b", 500) == [489]


def test_a_split_that_is_asked_only_when_its_patience_is_over_and_has_records_is_not_idle() -> None:
    """They waited, behind a jam say."""
    harness = Harness(idle_after="1s")
    harness.splits("a", "b")
    harness.clock(5_000)
    assert harness.feed("a", 100) == harness.asked("a", in_vain=False) == []
    assert harness.feed("b", 50) == [39]
    assert harness.asked("b") == [], "heard of just now"


def test_a_split_of_which_all_records_are_dropped_before_has_its_patience_once_more() -> None:
    harness = Harness(idle_after="1s")
    harness.splits("a", "b")
    harness.feed("a", 100)
    harness.clock(1_000)
    assert harness.asked("b", in_vain=False) == [], "more may wait behind them"
    harness.feed("a", 200)
    assert harness.clock(1_999) == harness.asked("b", in_vain=False) == []
    assert harness.clock(2_000) == []
    assert harness.asked("b", in_vain=False) == [189]


def test_a_split_that_ended_is_not_waited_for_to_be_asked() -> None:
    harness = Harness(idle_after="1s")
    harness.splits("a", "b")
    harness.feed("a", 100)
    harness.clock(1_000)
    assert harness.splits("a") == [89]
    assert harness.asked("b") == []
    assert harness.splits("a", "b") == [], "it is back, and has its patience again"
    assert harness.asked("b") == harness.feed("a", 300) == []


def test_input_without_splits_is_idle_when_nothing_is_there_behind_its_patience() -> None:
    harness = Harness(behind_source=False, idle_after="1s")
    harness.feed(100)
    assert harness.asked(ALL_INPUT) == harness.clock(1_000) == []
    assert harness.asked(ALL_INPUT) == [None]


def test_input_without_splits_is_not_silent_before_anybody_may_send() -> None:
    """Others may take long to open. What is replayed comes before that, and tells the time."""
    harness = Harness(behind_source=False, idle_after="1s", started=False)
    assert harness.clock(5_000) == harness.asked(ALL_INPUT) == []
    assert harness.feed(ALL_INPUT, 100) == [89]
    for now in (10_000, 15_000, 20_000):
        assert harness.clock(now) == harness.asked(ALL_INPUT, in_vain=False) == [], "dropped on their way here"
    assert harness.asked(ALL_INPUT) == []
    harness.operator.on_start()
    assert harness.asked(ALL_INPUT) == [], "its patience begins here"
    assert harness.operator.next_timer() == 21_000
    assert harness.clock(21_000) == []
    assert harness.asked(ALL_INPUT) == [None]


def test_watermarks_from_before_end_here_except_the_last() -> None:
    harness = Harness(behind_source=False)
    harness.feed("", 100)
    harness.out.times.clear()
    after(harness.operator.on_watermark(5000, harness.out))
    harness.operator.on_idle(harness.out)
    assert harness.taken() == []
    after(harness.operator.on_watermark(MAX_WATERMARK, harness.out))
    assert harness.taken() == [MAX_WATERMARK]


def test_what_was_late_before_a_restore_is_late_behind_it() -> None:
    first = Harness()
    first.splits("a", "b")
    first.feed("a", 100)
    first.feed("b", 50)
    second = Harness(restored=Stored(first.operator))
    assert second.splits("a", "b") == [39]
    assert second.splits("a") == [89]


def test_at_another_parallelism_a_split_keeps_its_watermark_and_input_without_splits_the_slowest() -> None:
    parts = [Harness(), Harness()]
    for part, split, time in zip(parts, "ab", (100, 50), strict=True):
        part.splits(split)
        part.feed(split, time)
    assert Harness(restored=Stored(*(part.operator for part in parts))).splits("a") == [89]
    parts = [Harness(behind_source=False), Harness(behind_source=False)]
    for part, time in zip(parts, (100, 50), strict=True):
        part.feed("", time)
    alone = Harness(behind_source=False, restored=Stored(*(part.operator for part in parts)))
    assert alone.feed("", 45) == [39]


def test_a_record_without_a_time_is_refused_by_name() -> None:
    harness = Harness(behind_source=False)
    with pytest.raises(DataError, match=r"with_timestamps 'with_timestamps' \(t1\): 1 of 1 records have no value"):
        harness.feed("", None)
