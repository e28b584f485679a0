"""The long forms of the tests of bounds: a minute shows a leak that is fast, ten minutes one that is slow."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.footprint import MIB
from tests.spark.test_bounds import silent_for, slow_sink_for

pytestmark = pytest.mark.timeout(3600)


def test_a_slow_sink_and_a_fast_source_take_no_more_memory_after_ten_minutes(
    tmp_path: Path, spark: SparkSession
) -> None:
    slow_sink_for(tmp_path, spark, seconds=600, jvm_growth=150 * MIB)


def test_a_source_that_is_silent_for_a_minute_holds_bytes_back_within_bounds(
    tmp_path: Path, spark: SparkSession
) -> None:
    silent_for(tmp_path, spark, seconds=60)
