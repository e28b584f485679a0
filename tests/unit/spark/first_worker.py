"""Runs the daemon of the workers up to where it waits for Spark, forks a worker there and tells what is new to that worker.

The worker does what a first task does: the imports of Spark's own worker, of ours, and a keyed aggregate on each backend.
"""

import importlib
import json
import os
import runpy
import sys
from typing import Any

import pyspark.daemon

FIRST_TASK = ("pyspark.worker", "pyspark.sql.pandas.serializers", "cutwater.spark.task", "cutwater.spark.blueprint")


def compiled_kernels() -> dict[str, Any]:
    """By name: which signatures are there, and how often one was loaded or compiled. Without those that are parts of others."""
    from numba.core.dispatcher import Dispatcher

    found = {
        f"{name}.{attribute}": value
        for name, module in list(sys.modules.items())
        if name.startswith("cutwater.")
        for attribute, value in list(vars(module).items())
        if isinstance(value, Dispatcher) and value.targetoptions.get("inline") != "always"
    }
    return {
        name: [
            len(kernel.signatures),
            sum(kernel.stats.cache_hits.values()) + sum(kernel.stats.cache_misses.values()),
        ]
        for name, kernel in found.items()
    }


def first_task() -> None:
    for name in FIRST_TASK:
        importlib.import_module(name)
    import polars as pl

    import cutwater as cw

    def pipeline(env: cw.Environment) -> None:
        words = env.read(cw.from_rows([], "word string, n long"), uid="words").with_columns(m=pl.col("n") % 3)
        words.key_by("word", "m").agg(n=cw.count(), total=cw.sum("n")).uid("counts").collect("out")

    for backend in (cw.Memory(), cw.RocksDB()):
        rows = [(f"w{n % 7}", n) for n in range(100)]
        script = cw.testing.script(rows, cw.testing.CHECKPOINT, cw.testing.FAIL, rows)
        assert cw.testing.run(pipeline, {"words": script}, state_backend=backend)["out"]


def fork_one() -> None:
    """In place of the loop that waits for Spark to ask for workers."""
    modules, kernels = set(sys.modules), compiled_kernels()
    if (worker := os.fork()) == 0:
        first_task()
        told = {"imported": sorted(set(sys.modules) - modules), "before": kernels, "after": compiled_kernels()}
        sys.stdout.write(json.dumps(told))
        sys.stdout.flush()
        os._exit(0)
    _, status = os.waitpid(worker, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    pyspark.daemon.manager = fork_one
    runpy.run_module("cutwater.spark.daemon", run_name="__main__")
