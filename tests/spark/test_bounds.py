"""Memory and disk stay bounded when one part of a job is slower than the others, or says nothing at all."""

from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

import cutwater as cw
from cutwater.subtask.limits import FlowLimits
from tests.spark.footprint import MIB, Footprint, bytes_below, growth, watch
from tests.spark.slowness import SLOW_RECORDS_PER_SECOND, slow_job, slow_records
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
    # The heap may still be growing towards its limit, not more.
    slow_sink_for(tmp_path, spark, seconds=60, jvm_growth=250 * MIB)


def slow_sink_for(folder: Path, spark: SparkSession, seconds: float, jvm_growth: int) -> None:
    job = slow_job(folder).start("slow-sink")
    wait_until(lambda: completed_checkpoints(job) >= 1, "a checkpoint completed")
    before, passed_before = completed_checkpoints(job), slow_records(job)
    found = watch(spark, job, seconds)
    assert job.status == "running", job.log  # without a restart
    assert completed_checkpoints(job) > before, "checkpoints went on"
    passed = slow_records(job) - passed_before
    assert 0 < passed < 2 * SLOW_RECORDS_PER_SECOND * seconds, "the sink held the source back"
    job.cancel()
    print(*found[:: max(1, len(found) // 10)], sep="\n")
    assert growth([each.workers for each in found]) < 60 * MIB
    assert growth([each.driver for each in found]) < 60 * MIB
    assert growth([each.jvm for each in found]) < jvm_growth
    assert growth([each.disk for each in found]) < 60 * MIB
    assert bytes_below(folder / "checkpoints") < 60 * MIB
