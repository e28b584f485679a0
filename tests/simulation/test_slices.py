"""A slow function delays a trigger by one slice, however many rows, timers or sessions wait for it and from the first one on."""

import random
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import cutwater as cw
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.statistics import CheckpointInfo
from cutwater.subtask.limits import FlowLimits
from cutwater.testing.clock import ManualClock
from cutwater.testing.simulation import Simulation

A_ROW = 0.01
ROWS = 300
NUMBER = "value long"
clock = ManualClock()
"""That of the simulation: only slow functions make time pass."""


class SlowRows(cw.Process):
    def process(self, row: Any, ctx: Any) -> Any:
        clock.advance(A_ROW)
        yield row


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
    env = cw.Environment(
        checkpointing=cw.Checkpointing("100ms", storage=cw.memory_storage("1GB"), unaligned=unaligned), parallelism=1
    )
    numbers = env.read(cw.from_rows(range(ROWS), NUMBER), uid="numbers")
    slow(numbers.rebalance() if behind_an_exchange else numbers).collect("out")
    ended = _run(env)
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


def _run(env: cw.Environment) -> list[CheckpointInfo]:
    """Every checkpoint of a run to the end."""

    class Watched(Simulation):
        def checkpoint_ended(self, info: CheckpointInfo) -> None:
            ended.append(info)

    ended: list[CheckpointInfo] = []
    store = JobStore(MemoryStorage(1 << 30), "slow")
    simulation = Watched(env.define("slow", 1), store, clock, random.Random(1).randrange)
    while not simulation.finished:
        assert simulation.step() or simulation.advance_to_next_timer()
    return ended
