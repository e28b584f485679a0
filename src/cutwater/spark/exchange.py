"""Levels as one Spark job: ``range -> mapInArrow -> exchange -> mapInArrow -> ...``, every exchange pipelined.

This is the one place that touches Spark's internals: the physical plan's exchanges are switched to the pipelined shuffle
that Spark 4.3 has for its Real-Time Mode, so that all stages run at the same time.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from cutwater.errors import PlanError
from cutwater.flow.envelope import EXCHANGE_DDL

RunLevel = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def chain_levels(spark: SparkSession, levels: Sequence[tuple[int, RunLevel]]) -> DataFrame:
    """``levels``: for each level its number of partitions and what a partition runs."""
    partitions, run = levels[0]
    frame = spark.range(0, partitions, 1, partitions).mapInArrow(run, EXCHANGE_DDL)
    for partitions, run in levels[1:]:
        frame = frame.repartitionById(partitions, col("target")).mapInArrow(run, EXCHANGE_DDL)
    return frame


def run_pipelined(spark: SparkSession, frame: DataFrame) -> None:
    """Run the job to its end; raises what Spark raises. Blocks; call it in a thread of its own."""
    jvm: Any = spark.sparkContext._jvm
    # Without an active session in this thread, rewriting the plan ends in a NullPointerException.
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    plan = _pipelined(jvm, frame._jdf.queryExecution().executedPlan())
    rows = spark._jsparkSession.internalCreateDataFrame(plan.execute(), frame._jdf.schema(), False)
    DataFrame(rows, spark).collect()


def _pipelined(jvm: Any, plan: Any) -> Any:
    children = plan.children()
    if children.size():
        switched = [_pipelined(jvm, children.apply(index)) for index in range(children.size())]
        plan = plan.withNewChildren(jvm.org.apache.spark.api.python.PythonUtils.toSeq(switched))
    if plan.getClass().getSimpleName() == "ShuffleExchangeExec":
        try:
            plan = plan.copy(
                plan.outputPartitioning(), plan.child(), plan.shuffleOrigin(), plan.advisoryPartitionSize(), True
            )
        except Exception as error:
            raise PlanError(
                "This Spark has no pipelined exchange, which Cutwater runs on. Spark 4.3.0 is needed: "
                f"pip install pyspark==4.3.0. (Spark said: {error})"
            ) from error
    return plan
