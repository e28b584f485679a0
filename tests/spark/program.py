"""One program for every kind of session: ``python program.py FOLDER [MASTER [SETTING=VALUE ...]]``.

Prints what became of it as JSON.
"""

import json
import sys
from pathlib import Path

import polars as pl
from pyspark.sql import SparkSession

import cutwater as cw
from cutwater.spark.session import quiet_logging
from cutwater.spark.settings import wants_protected_network

RECORDS, KEYS = 40_000, 100


def session(master: str, folder: Path, *more: str) -> SparkSession:
    conf = cw.spark_conf(master)
    quiet = f"-Dlog4j2.configurationFile={quiet_logging()}"
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "1g",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": quiet,
        "spark.executor.extraJavaOptions": quiet,
    }
    settings.update(setting.split("=", 1) for setting in more)
    for key, value in settings.items():
        conf.set(key, value)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def main() -> None:
    folder = Path(sys.argv[1])
    spark = session(sys.argv[2], folder, *sys.argv[3:]) if len(sys.argv) > 2 else None
    env = cw.Environment(
        spark,
        parallelism=2,
        checkpointing=cw.Checkpointing("500ms", storage=f"file:{folder / 'checkpoints'}"),
    )
    numbers = env.read(cw.sequence(RECORDS, rate=20_000), uid="numbers").with_columns(k=pl.col("value") % KEYS)
    numbers.key_by("k").agg(n=cw.count(), total=cw.sum("value")).uid("sums").collect("sums")
    try:
        result = env.execute("everywhere")
    except cw.CutwaterError as error:
        print(json.dumps({"error": type(error).__name__, "message": str(error)}))
        return
    last = {row.k: (row.n, row.total) for row in sorted(result.rows("sums"))}
    active = SparkSession.getActiveSession()
    assert active is not None
    told = {
        "status": result.status,
        "master": active.sparkContext.master,
        "count": sum(n for n, _ in last.values()),
        "total": sum(total for _, total in last.values()),
        "checkpoints": result.checkpoints,
        "sealed": wants_protected_network(active),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
