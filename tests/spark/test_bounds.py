"""Memory and disk stay bounded when one part of a job is slower than the others, or says nothing at all."""

from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

import cutwater as cw
from cutwater.subtask.limits import FlowLimits
from tests.spark.footprint import MIB, Footprint, growth, watch
from tests.spark.slowness import slow_job
from tests.spark.troubled import SilentSource
from tests.spark.workers import completed_checkpoints, wait_until, worker_pids

pytestmark = pytest.mark.timeout(900)
IN_FLIGHT = 16 * MIB
"""Of one channel when its consumer stops reading: Spark's reader and writer limits in whole buffers, with room to spare."""


def test_a_source_that_is_silent_behind_the_others_barrier_holds_bytes_back_within_bounds(
    tmp_path: Path, spark: SparkSession
) -> None:
    silent_for(tmp_path, spark, seconds=20)


def silent_for(folder: Path, spark: SparkSession, seconds: float) -> None:
    rows = 200_000
    hush = folder / "hush"
    env = cw.Environment(
        parallelism=2,
        checkpointing=cw.Checkpointing("300ms", storage=f"file:{folder / 'checkpoints'}"),
        restart=cw.no_restart(),
    )
    loud = env.read(cw.sequence(None), uid="loud").filter("value >= 0")
    silent = env.read(SilentSource(rows, hush, seconds), uid="silent")
    # One row for each record on the exchange: nothing is combined before it, so the loud source really pours.
    together = loud.union(silent).rebalance().map_batches(lambda rows: rows, "value long").uid("together")
    together.with_columns(k=pl.lit(1)).key_by("k").agg(n=cw.count()).uid("n").write(cw.discard(), uid="out")
    job = env.start("silent")
    wait_until(lambda: completed_checkpoints(job) >= 2, "two checkpoints completed")
    hush.touch()
    wait_until(lambda: hush.with_suffix(".begun").exists(), "the silence begins")
    held: list[int] = []

    def note(_: Footprint) -> None:
        held.append(max(p.held_bytes for s, p in job.progress.items() if s.vertex == "together"))

    found = watch(spark, job, seconds - 4, note)
    assert not hush.with_suffix(".over").exists(), "the silence ended before it was measured"
    waiting = completed_checkpoints(job)
    wait_until(lambda: hush.with_suffix(".over").exists(), "the silence ends")
    wait_until(lambda: completed_checkpoints(job) >= waiting + 2, "checkpoints complete when the silent one moves")
    slowest = max(job.checkpoints(), key=lambda each: each.duration if each.status == "completed" else 0)
    pids = worker_pids(job)
    job.cancel()
    print(
        f"held at most {max(held) / MIB:.1f} MiB, slowest checkpoint {slowest.duration:.1f} s, {found[0]}, {found[-1]}"
    )
    assert max(held) > FlowLimits().hold_bytes // 2, "nothing was held: the test shows nothing"
    channels = 4
    assert max(held) <= channels * (FlowLimits().hold_bytes + IN_FLIGHT)
    assert slowest.duration > seconds * 0.7
    assert growth([each.workers for each in found]) < 100 * MIB
    assert max(each.disk for each in found) < 2 * channels * (FlowLimits().hold_bytes + IN_FLIGHT)
    assert pids, "the job was restarted or ended on its way"
    assert not any("restarting" in line for line in job.log), job.log


def test_a_slow_sink_and_a_fast_source_take_no_more_memory_after_a_minute(tmp_path: Path, spark: SparkSession) -> None:
    job = slow_job(tmp_path).start("slow-sink")
    wait_until(lambda: completed_checkpoints(job) >= 1, "a checkpoint completed")
    found = watch(spark, job, seconds=60)
    job.cancel()
    print(found[0], found[-1])
    assert growth([each.workers for each in found]) < 60 * MIB
    assert growth([each.jvm for each in found]) < 250 * MIB, "the heap may still be growing towards its limit, not more"
    assert growth([each.disk for each in found]) < 60 * MIB
