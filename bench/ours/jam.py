"""A jammed pipeline: keyed steps one behind the other, a sink that takes a millisecond a record, sources at full speed.

How long checkpoints take, cut aligned, aligned with a timeout, and unaligned, one job and session each: until the last barrier
has arrived everywhere, and as a whole. Then unaligned with five steps and with two, whose pipes are wider, so that as many bytes
are on their way; and how many bytes wait in the inboxes over twelve checkpoints in a row. `--sink burn` hashes for about as
long instead of sleeping, as the peer does, which has no sink that sleeps.
"""

import argparse
import hashlib
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import SparkSession

import cutwater as cw
from bench.ours.session import PRIME, arguments, scratch_folder, session
from bench.peers.measure import Meter, emit, note
from cutwater.checkpoint.statistics import CheckpointInfo, CheckpointStatus
from cutwater.spark.settings import RECOMMENDED
from cutwater.subtask.limits import FlowLimits

MODES: Mapping[str, Mapping[str, Any]] = {
    "aligned": {},
    "timeout": {"unaligned": True, "aligned_timeout": "200ms"},
    "unaligned": {"unaligned": True},
}
MILLISECOND = 0.001
SLOTS = 24
WARM_UP_SECONDS = 30
MOST_UNEQUAL = 1.5
"""Two steps may have so many times the bytes on their way that five have: more would flatter the five."""
DEPTH_ROW_BYTES, DEPTH_PAUSE, DEPTH_COUNT = 5000, 4.0, 6
"""A checkpoint empties the pipes into the inboxes, and senders wait until those are worked off. With records that large and a while
between two checkpoints all pipes are full again when the next one comes, and barriers have to travel behind all that is in them."""
BURNT_BYTES = 480 << 10
"""About a millisecond."""


class Latest(cw.KeyedProcess):
    """Keeps the latest text of each key, so that the state is as large as its keys are many."""

    latest = cw.ValueState("string")

    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        self.latest.value = row.text
        yield row


class SlowSink(cw.Process):
    def __init__(self, *, burns: bool) -> None:
        self._burns = burns

    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        if self._burns:
            hashlib.sha512(
                row.text.encode() * (BURNT_BYTES // len(row.text))
            ).digest()  # lets go of the interpreter meanwhile
        else:
            time.sleep(MILLISECOND)
        yield row


@dataclass(frozen=True, slots=True)
class Shape:
    """What is run: ``state_bytes`` over all ``steps``, records of ``row_bytes``."""

    steps: int
    row_bytes: int
    state_bytes: int
    burns: bool
    parallelism: int

    @property
    def keys(self) -> int:
        return max(1, self.state_bytes // self.steps // self.row_bytes)

    def build(self, env: cw.Environment) -> None:
        stream = env.read(cw.sequence(None), uid="numbers")
        text = pl.col("value").cast(pl.String).str.pad_start(self.row_bytes, "x")
        schema = "value long, text string, k long"
        for step in range(self.steps):
            columns = {"k": (pl.col("value") * PRIME + step) % self.keys} | ({} if step else {"text": text})
            stream = stream.with_columns(**columns).select("value", "text", "k")
            stream = stream.key_by("k").process(Latest, schema).uid(f"step-{step + 1}")
        stream.process(SlowSink(burns=self.burns), schema).uid("slow").write(cw.discard(), uid="dropped")


@dataclass(frozen=True, slots=True)
class Taken:
    """The checkpoints of one job, and the most bytes that an inbox held behind each."""

    checkpoints: list[CheckpointInfo]
    inbox_bytes: list[int]
    sink_ms_per_record: float = 0.0
    """What a record really took, on a machine that others use too."""

    def __add__(self, other: "Taken") -> "Taken":
        return replace(
            self,
            checkpoints=self.checkpoints + other.checkpoints,
            inbox_bytes=self.inbox_bytes + other.inbox_bytes,
        )

    @property
    def barriers_ms(self) -> float:
        return statistics.median(map(barriers_ms, self.checkpoints))

    @property
    def e2e_ms(self) -> float:
        return statistics.median(info.duration for info in self.checkpoints) * 1e3

    @property
    def in_flight_bytes(self) -> float:
        return statistics.median(info.in_flight_bytes for info in self.checkpoints)


def barriers_ms(info: CheckpointInfo) -> float:
    """From the trigger until every barrier had arrived everywhere."""
    return max(each.start_delay + each.alignment for each in info.subtasks) * 1e3


def jammed_job(spark: SparkSession, shape: Shape, mode: str, folder: Path) -> cw.Job:
    """Started, and standing in a jam: every inbox is full, and all of the state is there."""
    env = cw.Environment(
        spark=spark,
        parallelism=shape.parallelism,
        checkpointing=cw.Checkpointing(  # they are asked for
            "1h", storage=f"file:{folder / 'checkpoints'}", timeout="5 min", **MODES[mode]
        ),
        restart=cw.no_restart(),
    )
    shape.build(env)
    job = env.start(f"jam-{mode}-{shape.steps}", restore="fresh")
    deadline = time.monotonic() + 120
    while not is_jammed(job, shape):
        if job.status == "failed":
            job.wait()
        if time.monotonic() > deadline:
            raise TimeoutError(f"no jam within two minutes: {job.progress}")
        time.sleep(0.2)
    return job


def is_jammed(job: cw.Job, shape: Shape) -> bool:
    readers = [each for subtask, each in job.progress.items() if "step" in subtask.vertex]
    full = [
        each.inbox_bytes >= FlowLimits().least_inbox_bytes / 2 and each.records_in >= shape.keys for each in readers
    ]
    return len(full) == shape.steps * shape.parallelism and all(full)


def through_the_sink(job: cw.Job, shape: Shape) -> int:
    last = f"step-{shape.steps}"
    return sum(each.records_in for subtask, each in job.progress.items() if last in subtask.vertex)


def take(job: cw.Job, shape: Shape, count: int, pause: float) -> Taken:
    """``count`` of them count; those before them warm up: a job that is jammed has been running for longer than this one."""
    until = time.monotonic() + WARM_UP_SECONDS
    while time.monotonic() < until:
        job.trigger_checkpoint()
        time.sleep(pause)
    taken, inboxes = [], []
    began, passed_before = time.monotonic(), through_the_sink(job, shape)
    for _ in range(count):
        taken.append(job.trigger_checkpoint())
        time.sleep(pause)
        inboxes.append(max(each.inbox_bytes for each in job.progress.values()))
    seconds, passed = time.monotonic() - began, through_the_sink(job, shape) - passed_before
    job.cancel()
    job.wait()
    failed = [info.failure_reason for info in taken if info.status is not CheckpointStatus.COMPLETED]
    if failed:
        raise RuntimeError(f"checkpoints failed: {failed}")
    return Taken(taken, inboxes, shape.parallelism * seconds * 1e3 / max(1, passed))


def run(spark: SparkSession, shape: Shape, mode: str, count: int, pause: float) -> Taken:
    with scratch_folder() as folder:
        taken = take(jammed_job(spark, shape, mode, folder), shape, count, pause)
    each_ms = ", ".join(f"{barriers_ms(each):.0f}" for each in taken.checkpoints)
    inboxes = ", ".join(f"{size / 1e6:.1f}" for size in taken.inbox_bytes)
    note(
        f"  {mode}, {shape.steps} steps: barriers {taken.barriers_ms:.0f} ms ({each_ms}), whole {taken.e2e_ms:.0f} ms, "
        f"state {taken.checkpoints[-1].state_bytes / 1e6:.1f} MB, in flight {taken.in_flight_bytes / 1e6:.1f} MB, "
        f"inboxes at most {inboxes} MB, a record took {taken.sink_ms_per_record:.1f} ms at the sink"
    )
    for each in max(taken.checkpoints, key=barriers_ms).subtasks:
        note(
            f"    {each.vertex}[{each.index}]: heard {each.start_delay * 1e3:.0f} ms, aligned {each.alignment * 1e3:.0f}, "
            f"sync {each.sync_duration * 1e3:.0f}, stored {each.async_duration * 1e3:.0f}, "
            f"acknowledged {each.acknowledged_after * 1e3:.0f}, gap {each.longest_gap * 1e3:.0f}, "
            f"in flight {each.in_flight_bytes / 1e6:.1f} MB"
        )
    return taken


def wider_pipes(times: float) -> dict[str, str]:
    """Settings of a session whose exchange holds so many times the bytes: nearly all that is on its way in a jam is there, and a
    barrier has to travel behind it. (In the inboxes of slow subtasks there is little, and it need not travel any more.)"""
    limits = ("spark.shuffle.streaming.readerMaxMemory", "spark.shuffle.streaming.writerMaxMemory")
    return {each: str(int(int(RECOMMENDED[each]) * times)) for each in limits}


def most_at_last(bytes_held: list[int]) -> int:
    """In the last third of the checkpoints: if the bytes grew with each of them, it would show here."""
    return max(bytes_held[-max(1, len(bytes_held) // 3) :])


def depth_figures(shape: Shape) -> dict[str, float]:
    """Five steps and two, with as many bytes on their way; in turns, as the machine is not always the same."""
    taken = {5: Taken([], []), 2: Taken([], [])}
    for steps, conf in ((5, {}), (2, wider_pipes(5 / 2))) * 2:
        wide = replace(shape, steps=steps, row_bytes=DEPTH_ROW_BYTES)
        with session(SLOTS, **conf) as spark:
            taken[steps] += run(spark, wide, "unaligned", DEPTH_COUNT, DEPTH_PAUSE)
    deep, shallow = taken[5], taken[2]
    if shallow.in_flight_bytes > MOST_UNEQUAL * deep.in_flight_bytes:
        raise RuntimeError(
            f"{shallow.in_flight_bytes} bytes on their way with two steps, {deep.in_flight_bytes} with five"
        )
    return {
        "barriers_5_steps_ms": deep.barriers_ms,
        "barriers_2_steps_ms": shallow.barriers_ms,
        "in_flight_5_steps_mb": deep.in_flight_bytes / 1e6,
        "in_flight_2_steps_mb": shallow.in_flight_bytes / 1e6,
        "depth_percent": (deep.barriers_ms / shallow.barriers_ms - 1) * 100,
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--row-bytes", type=int, default=500)
    parser.add_argument("--state-mb", type=float, default=10)
    parser.add_argument("--sink", choices=["sleep", "burn"], default="sleep")
    parser.add_argument("--count", type=int, default=12, help="unaligned checkpoints in a row")
    parser.add_argument("--slow-count", type=int, default=3, help="checkpoints of the other two kinds")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two checkpoints")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--depths", action=argparse.BooleanOptionalAction, default=True)
    wanted = parser.parse_args()
    shape = Shape(wanted.steps, wanted.row_bytes, int(wanted.state_mb * 1e6), wanted.sink == "burn", wanted.parallelism)
    fields: dict[str, Any] = {}
    with Meter() as meter:
        for mode in wanted.modes:
            count = wanted.count if mode == "unaligned" else wanted.slow_count
            with session(SLOTS) as spark:
                taken = run(spark, shape, mode, count, wanted.pause)
            prefix = "" if mode == "unaligned" else f"{mode}_"
            fields |= {
                f"{prefix}barriers_ms": taken.barriers_ms,
                f"{prefix}e2e_ms": taken.e2e_ms,
                f"{prefix}in_flight_mb": taken.in_flight_bytes / 1e6,
                f"{prefix}sink_ms_per_rec": taken.sink_ms_per_record,
                f"{prefix}state_mb": taken.checkpoints[-1].state_bytes / 1e6,
            }
            if mode == "unaligned":
                fields["inbox_most_mb"] = max(taken.inbox_bytes) / 1e6
                fields["inbox_at_last_mb"] = most_at_last(taken.inbox_bytes) / 1e6
        if "aligned" in wanted.modes and "unaligned" in wanted.modes:
            fields["aligned_times"] = fields["aligned_barriers_ms"] / fields["barriers_ms"]
        if wanted.depths:
            fields |= depth_figures(shape)
    emit(
        "jam",
        "cutwater",
        f"steps={wanted.steps} sink={wanted.sink} row={wanted.row_bytes} parallelism={wanted.parallelism}",
        count=wanted.count,
        others_cores=meter.others,
        **fields,
    )


if __name__ == "__main__":
    main()
