"""Executors register one after the other while a session starts: a young one may have fewer slots than it will have."""

import time
from collections.abc import Callable

from pyspark.sql import SparkSession

from cutwater.spark.master import Tasks, tasks_of
from cutwater.spark.slots import total_slots

REGISTRATION_SECONDS = 30.0
"""From the start of the session; as long as Spark itself waits for executors by default."""
FIRST_SECONDS = 120.0
"""While there is none at all: such a cluster is not too small, its machines are busy or still starting."""
LOOK_SECONDS = 0.1


def await_executors(spark: SparkSession, slots_needed: int) -> None:
    """Returns when there are slots enough, or when no more executors are to be expected."""
    context = spark.sparkContext
    if tasks_of(context.master) is Tasks.IN_THE_DRIVER:
        return
    started_at = float(context.startTime) / 1000
    await_slots(lambda: total_slots(spark), slots_needed, lambda: time.time() - started_at)


def await_slots(count: Callable[[], int], needed: int, age: Callable[[], float]) -> None:
    while (slots := count()) < needed and 0 <= age() < (REGISTRATION_SECONDS if slots else FIRST_SECONDS):
        time.sleep(LOOK_SECONDS)
