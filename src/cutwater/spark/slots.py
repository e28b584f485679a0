"""How many tasks Spark can run at once: a job of levels needs a slot for every subtask, all at the same time."""

from typing import Any

from pyspark.sql import SparkSession

from cutwater.errors import PlanError


def total_slots(spark: SparkSession) -> int:
    context: Any = spark.sparkContext._jsc.sc()
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


def free_slots(spark: SparkSession) -> int:
    """Those not taken by running tasks of any job of this session."""
    tracker = spark.sparkContext.statusTracker()
    busy = 0
    for stage in tracker.getActiveStageIds():
        info = tracker.getStageInfo(stage)
        busy += info.numActiveTasks if info is not None else 0
    return max(0, total_slots(spark) - busy)


def refuse_too_few(spark: SparkSession, needed: int) -> None:
    """Before anything starts: could this session ever run the job?"""
    total = total_slots(spark)
    if total >= needed:
        return
    master = spark.sparkContext.master
    advice = (
        f"Use master local[{needed}] or more (slots are threads, not cores)"
        if str(master).startswith("local[")
        else f"Give the session executors with at least {needed} cores in all"
    )
    raise PlanError(
        f"This job needs {needed} slots at the same time, and the session (master {master}) has {total}. "
        f"{advice}, for example with cw.spark_conf(master=...), or lower the parallelism."
    )
