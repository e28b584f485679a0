"""How many tasks Spark can run at once: a job of levels needs a slot for every subtask, all at the same time."""

import os
from collections.abc import Callable
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from cutwater.errors import PlanError
from cutwater.spark.master import Tasks, tasks_of

MANY_WORKERS_A_CORE: Final = 32
"""Each worker is a process with libraries of its own to set up: a busy core starts about three a second."""


def total_slots(spark: SparkSession) -> int:
    context: Any = spark.sparkContext._jsc.sc()
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


def was_stopped(spark: SparkSession) -> bool:
    """Whether somebody stopped the session, or its JVM is gone."""
    try:
        return bool(spark.sparkContext._jsc is None or spark.sparkContext._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return True


def free_slots(spark: SparkSession) -> int:
    """Those not taken by running tasks of any job of this session."""
    tracker = spark.sparkContext.statusTracker()
    busy = 0
    for stage in tracker.getActiveStageIds():
        info = tracker.getStageInfo(stage)
        busy += info.numActiveTasks if info is not None else 0
    return max(0, total_slots(spark) - busy)


def refuse_too_few(spark: SparkSession, needed: int, kept_because: Callable[[], str | None]) -> None:
    """Before anything starts: could this session ever run the job? ``kept_because``: why no larger one was started."""
    total = total_slots(spark)
    if total >= needed:
        return
    raise PlanError(too_few(spark.sparkContext.master, total, free_slots(spark), needed, kept_because()))


def too_few(master: str | None, total: int, free: int, needed: int, kept_because: str | None) -> str:
    advice = (
        f"Use master local[{needed}] or more (slots are threads, not cores), for example with cw.spark_conf(slots={needed})"
        if tasks_of(master) is Tasks.IN_THE_DRIVER
        else f"Give the session executors with at least {needed} cores in all"
    )
    kept = f" No larger session was started: {kept_because}." if kept_because else ""
    return (
        f"This job needs {needed} slots at the same time, and the session (master {master}) has {total}, {free} of them free. "
        f"{advice}, or lower the parallelism.{kept}"
    )


def crowding_notices(spark: SparkSession, workers: int) -> list[str]:
    """Slots of a local master are promised freely; the cores behind them are not more for that."""
    if tasks_of(spark.sparkContext.master) is not Tasks.IN_THE_DRIVER:
        return []
    crowded = crowding(workers, len(os.sched_getaffinity(0)))
    return [crowded] if crowded else []


def crowding(workers: int, cores: int) -> str | None:
    if workers <= MANY_WORKERS_A_CORE * cores:
        return None
    return (
        f"{workers} Python workers share {cores} {'core' if cores == 1 else 'cores'}, and the connections between them grow with "
        f"the square of their number: the start alone may take minutes. A lower parallelism begins sooner."
    )
