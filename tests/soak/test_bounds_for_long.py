"""The long forms of the tests of bounds: a minute shows a leak that is fast, ten minutes one that is slow."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.footprint import MIB, growth, watch
from tests.spark.slowness import slow_job
from tests.spark.test_bounds import silent_for
from tests.spark.workers import completed_checkpoints, wait_until

pytestmark = pytest.mark.timeout(3600)


def test_a_slow_sink_and_a_fast_source_take_no_more_memory_after_ten_minutes(
    tmp_path: Path, spark: SparkSession
) -> None:
    job = slow_job(tmp_path).start("slow-sink")
    wait_until(lambda: completed_checkpoints(job) >= 1, "a checkpoint completed")
    found = watch(spark, job, seconds=600)
    job.cancel()
    print(*found[::60], sep="\n")
    assert growth([each.workers for each in found]) < 60 * MIB
    assert growth([each.jvm for each in found]) < 150 * MIB
    assert growth([each.disk for each in found]) < 60 * MIB


def test_a_source_that_is_silent_for_a_minute_holds_bytes_back_within_bounds(
    tmp_path: Path, spark: SparkSession
) -> None:
    silent_for(tmp_path, spark, seconds=60)
