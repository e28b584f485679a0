"""W4: how long a checkpoint of a million keys takes, of about 100 bytes each: count, sum and the largest of texts of 80 letters.

Records come at a steady rate, below what the job could take, and a checkpoint is asked for every other second once all keys are
there and the JVM has compiled what it runs, as for the peers: the median of those that completed. With `--one-in N` records then
come to every N-th key only.

How long a loop stood still is told of those checkpoints beside which the machine itself did not: a virtual one does, while its host
serves others.
"""

import math
import statistics
import time
from dataclasses import dataclass

import polars as pl

import cutwater as cw
from bench.ours.session import arguments, environment, scratch_folder, session, spread_over_keys, variant
from bench.peers.measure import emit
from bench.stalls import StallWatch
from cutwater.checkpoint.statistics import CheckpointInfo, CheckpointStatus

STALLED = 0.025
"""Seconds. A loop that waits that long for a core, and more than once, tells nothing of one that may stand still for 0.1."""


def wide_totals(env: cw.Environment, keys: int, rate: int, one_in: int) -> None:
    numbers = env.read(cw.sequence(None, rate=rate), uid="numbers")
    any_key = spread_over_keys(keys)
    key = pl.when(pl.col("value") < keys).then(any_key).otherwise(any_key // one_in * one_in)
    drawn = numbers.select(k=key, v=pl.col("value").hash(7) % 1_000_000_001)
    texts = drawn.with_columns(v=pl.col("v").cast(pl.Int64), m=pl.col("v").cast(pl.String).str.pad_start(80, "x"))
    wide = texts.key_by("k").agg(c=cw.count(), s=cw.sum("v"), m=cw.max("m")).uid("totals")
    wide.write(cw.discard(), uid="dropped")


@dataclass(frozen=True)
class Taken:
    info: CheckpointInfo
    stalled: float
    """For so long, in seconds, a core of the machine stood still since the checkpoint before: a gap counts from its cut."""

    @property
    def gap(self) -> float:
        return max(each.longest_gap for each in self.info.subtasks)


def take(job: cw.Job, seconds: float) -> list[Taken]:
    """Those that completed."""
    until, taken = time.monotonic() + seconds, []
    before = math.inf  # nobody watched
    with StallWatch() as watch:
        while time.monotonic() < until:
            info = job.trigger_checkpoint()
            now = watch.take()
            if info.status is CheckpointStatus.COMPLETED:
                taken.append(Taken(info, max(before, now)))
            before = now
            time.sleep(2)
    return taken


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rate", type=int, default=300_000)
    parser.add_argument("--seconds", type=float, default=20, help="of measuring, after all keys were seen")
    parser.add_argument(
        "--warm-up", type=float, default=30, help="seconds before that; the peers have 40 from their start"
    )
    parser.add_argument("--one-in", type=int, default=1, help="of so many keys one changes once all were seen")
    wanted = parser.parse_args()
    wanted.checkpoints = "1h"  # they are asked for
    with session() as spark, scratch_folder() as folder:
        env = environment(spark, wanted, folder)
        wide_totals(env, wanted.keys, wanted.rate, wanted.one_in)
        job = env.start("w4", restore="fresh")
        while (
            sum(each.records_in for each in job.trigger_checkpoint().subtasks if "totals" in each.vertex) < wanted.keys
        ):
            time.sleep(1)
        take(job, wanted.warm_up)  # what came last of all keys is in the first of them
        taken = take(job, wanted.seconds)
        job.cancel()
        job.wait()
    done = [each.info for each in taken]
    undisturbed = [each for each in taken if each.stalled < STALLED]
    emit(
        "W4",
        "cutwater",
        f"{variant(wanted)} one-in={wanted.one_in}",
        completed=len(done),
        e2e_ms=statistics.median(info.duration for info in done) * 1e3,
        e2e_max_ms=max(info.duration for info in done) * 1e3,
        state_mb=statistics.median(info.state_bytes for info in done) / 1e6,
        sync_ms=statistics.median(info.sync_duration for info in done) * 1e3,
        longest_sync_ms=max(info.sync_duration for info in done) * 1e3,
        longest_gap_ms=max(each.gap for each in undisturbed or taken) * 1e3,
        longest_gap_ms_of_all=max(each.gap for each in taken) * 1e3,
        undisturbed=len(undisturbed),
    )


if __name__ == "__main__":
    main()
