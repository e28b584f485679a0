"""A split is silent when it is asked in vain, not when nobody had the time to ask it."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.connectors.source import END, EndOfSplit, SourceContext
from cutwater.flow.watermarks import MAX_WATERMARK
from cutwater.rows import batch_of
from cutwater.schema import arrow_schema
from cutwater.subtask.limits import FlowLimits
from cutwater.subtask.operator_subtask import OperatorSubtask
from cutwater.subtask.source_subtask import SourceSubtask
from cutwater.testing.clock import ManualClock
from cutwater.testing.run import _rows as decoded
from cutwater.testing.simulation import Simulation

SCHEMA = arrow_schema("k string, ts long")
MODES = ["exactly_once", "at_most_once"]


class Answers(cw.Source):
    """Each split is what it answers whenever it is asked: times, or nothing."""

    schema = SCHEMA

    def __init__(self, **answers: Sequence[list[int]]) -> None:
        self._answers = answers

    def splits(self) -> list[str]:
        return list(self._answers)

    def open(self, split: str, position: int | None, ctx: SourceContext) -> "AnswersReader":
        return AnswersReader(split, self._answers[split], position or 0)


class AnswersReader(cw.SplitReader):
    def __init__(self, split: str, answers: Sequence[list[int]], given: int) -> None:
        self._split, self._answers, self._given = split, answers, given

    def next_batch(self, max_rows: int, timeout: timedelta) -> pa.RecordBatch | EndOfSplit | None:
        if self._given == len(self._answers):
            return END
        self._given += 1
        times = self._answers[self._given - 1]
        return batch_of([(self._split, time) for time in times], SCHEMA, "test") if times else None

    def position(self) -> int:
        return self._given


class Met(cw.KeyedProcess):
    """Every record with the watermark that it met."""

    def process(self, row: Any, ctx: Any) -> Any:
        yield row.k, row.ts, ctx.watermark


class Run:
    """With ``parallelism``, time begins in that many subtasks behind an exchange."""

    def __init__(
        self, source: cw.Source, mode: str, seed: int = 1, wanted: str = "true", parallelism: int | None = None
    ) -> None:
        checkpointing = cw.Checkpointing("1h", storage=cw.memory_storage("1GB"), mode=mode)
        env = cw.Environment(checkpointing=checkpointing, parallelism=parallelism or 1)
        read = env.read(source, uid="in", parallelism=1)
        given = read if parallelism is None else read.rebalance()
        timed = given.filter(wanted).uid("wanted").with_timestamps("ts", idle_after="1s")
        timed.key_by("k").process(Met(), "k string, ts long, watermark long").uid("met").collect("out")
        limits = FlowLimits(payload_bytes=64, least_payload_bytes=64, linger_seconds=0.0, watermark_seconds=0.0)
        self._store, self.clock = JobStore(MemoryStorage(1 << 30), "silence"), ManualClock()
        definition = replace(env.define("silence", parallelism or 1), limits=limits)
        self.simulation = Simulation(definition, self._store, self.clock, random.Random(seed).randrange, buffer_rows=1)

    def step(self) -> None:
        assert self.simulation.step() or self.simulation.advance_to_next_timer()

    def jammed(self) -> bool:
        """The source has read some of each split, and what it sends finds no room."""
        return any(
            isinstance(loop._subtask, SourceSubtask)
            and self.records_read() >= 20
            and bool(loop._outgoing)
            and not loop._has_room(loop._outgoing[0])
            for loop in self.simulation._loops
        )

    def records_read(self) -> int:
        return sum(
            subtask.records_in for subtask in self.simulation.subtasks.values() if isinstance(subtask, SourceSubtask)
        )

    def met(self) -> list[Any]:
        return decoded(self._store.collected.read("collect-out"))

    def late(self) -> list[Any]:
        return [row for row in self.met() if row.watermark is not None and row.ts <= row.watermark]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3))
def test_splits_whose_records_wait_behind_a_jam_are_not_silent(seed: int, mode: str) -> None:
    slow, fast = ([[first + number] for number in range(40)] for first in (0, 100_000))
    run = Run(Answers(slow=slow, fast=fast), mode, seed)
    while not run.jammed():
        run.step()
    run.clock.advance(2.0)
    while not run.simulation.finished:
        run.step()
    assert len(run.met()) == 80
    assert run.late() == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wanted", ["true", "k != 'other'"])
def test_a_silent_split_beside_one_that_always_has_records_is_found(wanted: str, mode: str) -> None:
    """The same for one whose records are all dropped before they have a time."""
    busy = [[number] for number in range(100)]
    other = [[]] * 100 if wanted == "true" else busy
    run = Run(Answers(busy=busy, other=other), mode, wanted=wanted)
    while not run.simulation.finished:
        run.clock.advance(0.02)
        run.step()
    rows = run.met()
    assert len(rows) == 100
    assert any(row.watermark is not None and row.watermark < MAX_WATERMARK for row in rows)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("parallelism", [None, 2])
def test_a_source_that_never_gave_anything_is_found_silent_while_it_is_open(parallelism: int | None, mode: str) -> None:
    run = Run(Answers(quiet=[[]] * 200), mode, parallelism=parallelism)
    readers = [subtask for name, subtask in run.simulation.subtasks.items() if name.vertex == "met"]
    assert all(isinstance(subtask, OperatorSubtask) for subtask in readers)
    while not all(subtask._told[1] for subtask in readers):
        run.clock.advance(0.02)
        run.step()
    assert not run.simulation.finished
    assert run.clock.monotonic() < 3.0


@pytest.mark.parametrize("mode", MODES)
def test_the_first_records_of_a_split_tell_how_far_time_has_come(mode: str) -> None:
    run = Run(Answers(one=[[100], [], [], [200], [], [], [300]]), mode)
    while not run.simulation.finished:
        run.step()
    assert [(row.ts, row.watermark) for row in run.met()] == [(100, None), (200, 99), (300, 199)]


def test_a_split_that_had_nothing_behind_records_that_are_still_in_hand_is_not_silent() -> None:
    """At most once, some batches of each are read before the first is passed on."""
    slow, fast = ([[first], [], [first + 1], []] for first in (0, 100_000))
    run = Run(Answers(slow=slow, fast=fast), "at_most_once")
    while run.records_read() < 2:
        run.step()
    run.clock.advance(2.0)
    while not run.simulation.finished:
        run.step()
    assert run.late() == []


class Later(Answers):
    """Of which a split is found later."""

    def splits(self) -> list[str]:
        return [split for split in super().splits() if split != "later"]


@pytest.mark.parametrize("mode", MODES)
def test_a_split_that_is_found_holds_time_back_before_silent_ones_let_it_go_on(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fire = SourceSubtask._fire_timers

    def fire_and_find(self: SourceSubtask) -> Any:
        worked = yield from fire(self)
        if worked:
            self._input.add([{"split": "later", "position": None}])
        return worked

    monkeypatch.setattr(SourceSubtask, "_fire_timers", fire_and_find)
    run = Run(Later(early=[[100_000], *[[]] * 10], silent=[[]] * 10, later=[[5]]), mode)
    while run.records_read() < 1:
        run.step()
    run.clock.advance(2.0)
    while not run.simulation.finished:
        run.step()
    assert [row.k for row in run.met()] == ["early", "later"]
    assert run.late() == []


@pytest.mark.parametrize("mode", MODES)
def test_behind_an_exchange_nobody_is_silent_before_all_subtasks_are_open(mode: str) -> None:
    """One of the two is slow at first: the other must not make time go on alone."""
    run = Run(Answers(one=[[time] for time in range(60)]), mode, parallelism=2)
    simulation = run.simulation

    def rest_of_loops() -> None:
        while loops := [action for action in simulation.actions() if action.kind == "loop"]:
            simulation.perform(loops[0])

    rest_of_loops()
    run.clock.advance(2.0)
    rest_of_loops()
    while others := [action for action in simulation.actions() if (action.kind, action.actor) != ("loop", "wanted[1]")]:
        if run.records_read() == 60:
            break
        simulation.perform(others[simulation._choose(len(others))])
    while not simulation.finished:
        run.step()
    assert len(run.met()) == 60
    assert run.late() == []
