"""A slow function delays a trigger by one slice, however many rows, timers or sessions wait for it and from the first one on."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any

import polars as pl
import pytest

import cutwater as cw
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.statistics import CheckpointInfo
from cutwater.operators.grid_windows import GridWindows
from cutwater.operators.turn import ROWS_AT_ONCE
from cutwater.subtask.limits import FlowLimits
from cutwater.subtask.operator_subtask import OperatorSubtask
from cutwater.testing.actors import LoopActor
from cutwater.testing.clock import ManualClock
from cutwater.testing.run import _rows as decoded
from cutwater.testing.simulation import Simulation

A_ROW = 0.01
A_CHEAP_ROW = 1e-6
ROWS = 300
CHEAP_ROWS = 20_000
NUMBER = "value long"
clock = ManualClock()
"""That of the simulation: only slow functions make time pass."""


class SlowRows(cw.Process):
    def process(self, row: Any, ctx: Any) -> Any:
        clock.advance(A_ROW)
        yield row


class SlowRight(cw.CoProcess):
    def process_left(self, row: Any, ctx: Any) -> Any:
        clock.advance(A_CHEAP_ROW)
        yield row

    def process_right(self, row: Any, ctx: Any) -> Any:
        clock.advance(A_ROW)
        yield row


class SlowBroadcast(cw.BroadcastProcess):
    def process(self, row: Any, ctx: Any) -> Any:
        clock.advance(A_CHEAP_ROW)
        yield row

    def process_broadcast(self, row: Any, ctx: Any) -> None:
        clock.advance(A_ROW)


def slow_batch(rows: pl.DataFrame) -> pl.DataFrame:
    clock.advance(A_ROW * rows.height)
    return rows


def _row_function(stream: cw.Stream) -> cw.Stream:
    return stream.process(SlowRows, NUMBER)


def _batch_function(stream: cw.Stream) -> cw.Stream:
    return stream.map_batches(slow_batch, NUMBER)


@pytest.mark.parametrize("behind_an_exchange", [False, True])
@pytest.mark.parametrize("slow", [_row_function, _batch_function])
@pytest.mark.parametrize("unaligned", [False, True])
def test_a_slow_function_is_never_long_in_one_piece_of_work(
    slow: Callable[[cw.Stream], cw.Stream], behind_an_exchange: bool, unaligned: bool
) -> None:
    env = _environment(unaligned=unaligned)
    numbers = env.read(cw.from_rows(range(ROWS), NUMBER), uid="numbers")
    slow(numbers.rebalance() if behind_an_exchange else numbers).collect("out")
    _assert_no_piece_of_work_is_long(_run(env))


@pytest.mark.parametrize("unaligned", [False, True])
@pytest.mark.parametrize("function", [SlowRight, SlowBroadcast])
def test_an_input_with_slow_rows_is_not_paced_by_the_cheap_rows_of_another(
    function: type[cw.CoProcess | cw.BroadcastProcess], unaligned: bool
) -> None:
    env = _environment(unaligned=unaligned)
    cheap = env.read(cw.sequence(CHEAP_ROWS), uid="cheap").rebalance()
    slow = env.read(cw.sequence(ROWS), uid="slow")
    other = slow.broadcast() if function is SlowBroadcast else slow.rebalance()
    cheap.connect(other).process(function, NUMBER).uid("both").collect("out")
    _assert_no_piece_of_work_is_long(_run(env))


def _call_a_service(value: int) -> None:
    """It answers at once until it has been asked very often."""
    clock.advance(A_ROW if value >= CHEAP_ROWS else A_CHEAP_ROW)


def _asking(row: Any, *_: Any) -> Any:
    _call_a_service(row.value)
    return row


def _asking_twice(row: Any) -> Any:
    _call_a_service(row.value)
    return [row, row] if row.value % 2 else None


def _asking_whether(row: Any) -> bool:
    _call_a_service(row.value)
    return row.value % 3 != 0


def _asking_for_both(reduced: Any, row: Any) -> Any:
    _call_a_service(row.value)
    return reduced.value + row.value, row.zero


class Asking(cw.Process):
    def process(self, row: Any, ctx: Any) -> Any:
        return [_asking(row)]


class AskingByKey(cw.KeyedProcess):
    last = cw.ValueState("long")

    def process(self, row: Any, ctx: Any) -> Any:
        _call_a_service(row.value)
        assert (self.last.value or -1) < row.value, "a row came twice"
        self.last.value = row.value
        return [(row.value,)]


class AskingOnTheLeft(cw.CoProcess):
    def process_left(self, row: Any, ctx: Any) -> Any:
        return [_asking(row)]

    def process_right(self, row: Any, ctx: Any) -> Any:
        return []


def _of_one_key(numbers: cw.Stream) -> cw.KeyedStream:
    return numbers.with_columns(zero=pl.lit(0)).key_by("zero")


ALL = range(CHEAP_ROWS + ROWS)
BECOMES_SLOW: dict[str, tuple[Callable[[cw.Stream], cw.Stream], list[int]]] = {
    "map": (lambda s: s.rebalance().map(_asking, NUMBER), [*ALL]),
    "flat map": (
        lambda s: s.rebalance().flat_map(_asking_twice, NUMBER),
        [value for value in ALL if value % 2 for _ in range(2)],
    ),
    "filter": (lambda s: s.rebalance().filter(_asking_whether), [value for value in ALL if value % 3]),
    "process": (lambda s: s.rebalance().process(Asking, NUMBER), [*ALL]),
    "by key": (lambda s: _of_one_key(s).process(AskingByKey, NUMBER), [*ALL]),
    "reduce": (lambda s: _of_one_key(s).reduce(_asking_for_both), [*accumulate(ALL)]),
    "connected": (
        lambda s: s.rebalance().connect(s.filter("value < 5").rebalance()).process(AskingOnTheLeft, NUMBER),
        [*ALL],
    ),
}


@pytest.mark.parametrize("which", BECOMES_SLOW)
def test_rows_that_suddenly_take_long_are_not_waited_for_and_none_is_lost_or_repeated(which: str) -> None:
    function, wanted = BECOMES_SLOW[which]
    env = _environment(unaligned=True)
    function(env.read(cw.sequence(len(ALL)), uid="numbers")).uid("slow").collect("out")
    ended, results = _run_to_its_results(env)
    assert {info.status for info in ended} == {"completed"}
    assert A_ROW <= max(part.longest_gap for info in ended for part in info.subtasks) <= ROWS_AT_ONCE * A_ROW + 0.1
    assert results == wanted


def _environment(*, unaligned: bool) -> cw.Environment:
    checkpointing = cw.Checkpointing("100ms", storage=cw.memory_storage("1GB"), unaligned=unaligned)
    return cw.Environment(checkpointing=checkpointing, parallelism=1)


def _assert_no_piece_of_work_is_long(ended: list[CheckpointInfo]) -> None:
    assert len(ended) > 1
    assert {info.status for info in ended} == {"completed"}
    longest = max(part.longest_gap for info in ended for part in info.subtasks)
    assert A_ROW <= longest <= FlowLimits().slice_seconds + A_ROW


class SlowTimers(cw.KeyedProcess):
    def process(self, row: Any, ctx: Any) -> Any:
        ctx.timers.event_time(1_000)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        clock.advance(A_ROW)
        yield (ctx.key,)


class SlowResult(cw.AggregateFunction):
    accumulator_type = result_type = "long"

    def create(self) -> int:
        return 0

    def add(self, accumulator: int, row: Any) -> int:
        return row.value

    def merge(self, left: int, right: int) -> int:
        return left + right

    def result(self, accumulator: int) -> int:
        clock.advance(A_ROW)
        return accumulator


def slow_session(rows: Any, ctx: Any) -> Any:
    clock.advance(A_ROW)
    return [(ctx.key,)]


ALL_DUE_AT_ONCE: dict[str, Callable[[cw.KeyedStream], cw.Stream]] = {
    "timers": lambda keyed: keyed.process(SlowTimers, NUMBER),
    "sessions": lambda keyed: keyed.window(cw.session("1s")).process(slow_session, NUMBER),
    "sessions of an own aggregate": lambda keyed: keyed.window(cw.session("1s")).agg(result=SlowResult()),
    "sessions by the clock, at the end of input": lambda keyed: keyed.window(
        cw.session("1h"), time="processing"
    ).process(slow_session, NUMBER),
}


@pytest.mark.parametrize("which", ALL_DUE_AT_ONCE)
def test_an_unaligned_cut_comes_between_slow_timers_and_sessions(which: str) -> None:
    env = cw.Environment(
        checkpointing=cw.Checkpointing("100ms", storage=cw.memory_storage("1GB"), unaligned=True), parallelism=1
    )
    numbers = env.read(cw.from_rows(range(ROWS), NUMBER), uid="numbers")
    keyed = numbers.with_columns(ts=pl.lit(5, pl.Int64)).with_timestamps("ts").key_by("value")
    ALL_DUE_AT_ONCE[which](keyed).uid("slow").rebalance().collect("out")
    ended = _run(env)
    assert len(ended) > 5, "none came in between"
    assert {info.status for info in ended} == {"completed"}
    longest = max(part.longest_gap for info in ended for part in info.subtasks)
    assert A_ROW <= longest <= FlowLimits().slice_seconds + A_ROW


TIMER_AFTER = 100


class SlowWithATimer(cw.KeyedProcess):
    """Says for each of its timers how many milliseconds late it was."""

    is_set = cw.ValueState("boolean")

    def process(self, row: Any, ctx: Any) -> Any:
        clock.advance(A_ROW)
        if not self.is_set.value:
            self.is_set.value = True
            ctx.timers.processing_time(ctx.now + TIMER_AFTER)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        self.is_set.clear()
        yield (ctx.now - timestamp,)


@pytest.mark.parametrize("unaligned", [False, True])
def test_timers_of_the_clock_do_not_wait_for_the_slow_rows_that_came_with_theirs(unaligned: bool) -> None:
    env = _environment(unaligned=unaligned)
    _of_one_key(env.read(cw.sequence(ROWS), uid="numbers")).process(SlowWithATimer, NUMBER).uid("slow").collect("out")
    _, late = _run_to_its_results(env)
    assert len(late) > ROWS * A_ROW * 1000 / (TIMER_AFTER * 3)
    assert max(late) <= 1000 * (ROWS_AT_ONCE * A_ROW + 0.1)


def _in_order(env: cw.Environment, name: str, first: int) -> cw.Stream:
    rows = [(number % 5, first + number) for number in range(400)]
    return env.read(cw.from_rows(rows, "k long, ts long"), uid=name)


def _exchanged(rows: cw.Stream) -> cw.Stream:
    return rows.rebalance()


def _from_windows(rows: cw.Stream) -> cw.Stream:
    """The same rows, told when time goes on: very many at once."""
    windows = rows.with_timestamps("ts").key_by("k").window(cw.tumbling("100ms"))
    return windows.process(lambda rows, ctx: [(row.k, row.ts) for row in rows], "k long, ts long").select("k", "ts")


@pytest.mark.parametrize("come", [_exchanged, _from_windows])
def test_an_input_of_which_rows_wait_is_not_silent_however_long_they_find_no_room(come: Any) -> None:
    """It would be left behind, and its rows be late."""
    jams = [_all_rows_come_behind_a_jam(seed, come) for seed in range(12)]
    assert any(jams)


def _all_rows_come_behind_a_jam(seed: int, come: Callable[[cw.Stream], cw.Stream]) -> bool:
    """Whether there was one."""
    env = cw.Environment(checkpointing=cw.Checkpointing("1h", storage=cw.memory_storage("1GB")), parallelism=1)
    slow, fast = (
        come(_in_order(env, name, first))
        .with_timestamps("ts", out_of_orderness="100ms", idle_after="1s")
        .uid(f"{name}-time")
        for name, first in (("slow", 0), ("fast", 100_000))
    )
    both = slow.union(fast)
    both.key_by("k").window(cw.tumbling("10ms")).process(lambda rows, ctx: [(len(rows),)], NUMBER).uid("w").collect(
        "out"
    )
    store, own_clock = JobStore(MemoryStorage(1 << 30), "jam"), ManualClock()
    limits = FlowLimits(payload_bytes=512, least_payload_bytes=512, linger_seconds=0.0, max_slice_rows=8)
    pipeline = replace(env.define("jam", 1), limits=limits)
    simulation = Simulation(pipeline, store, own_clock, random.Random(seed).randrange, buffer_rows=1)
    jammed = False
    while not simulation.finished:
        if not jammed and any(_finds_no_room(loop) for loop in simulation._loops):
            own_clock.advance(2.0)
            jammed = True
        assert simulation.step() or simulation.advance_to_next_timer()
    assert sum(row.value for row in decoded(store.collected.read("collect-out"))) == 800
    return jammed


def _finds_no_room(loop: LoopActor) -> bool:
    """Between two slices of the slower input, or between two of its windows that are told while more rows wait."""
    running = loop._subtask
    is_slow = "slow-time" in {node.uid for node in running._setup.vertex.members}
    full = loop._outgoing and not loop._has_room(loop._outgoing[0])
    if not (is_slow and full and isinstance(running, OperatorSubtask)):
        return False
    windows = [body for body in running._chain._operators.values() if isinstance(body, GridWindows)]
    is_telling = any(body._ends.due_until is not None for body in windows)
    return bool(running._in_hand()) or (is_telling and running.intake.has_items())


def _run(env: cw.Environment) -> list[CheckpointInfo]:
    return _run_to_its_results(env)[0]


def _run_to_its_results(env: cw.Environment) -> tuple[list[CheckpointInfo], list[Any]]:
    """Every checkpoint of a run to the end, and the values that it collected."""

    class Watched(Simulation):
        def checkpoint_ended(self, info: CheckpointInfo) -> None:
            ended.append(info)

    ended: list[CheckpointInfo] = []
    store = JobStore(MemoryStorage(1 << 30), "slow")
    simulation = Watched(env.define("slow", 1), store, clock, random.Random(1).randrange)
    while not simulation.finished:
        assert simulation.step() or simulation.advance_to_next_timer()
    return ended, [row.value for row in decoded(store.collected.read("collect-out"))]
