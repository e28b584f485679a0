"""The job that is killed: run as a process of its own, so that its driver can be killed too.

    python chaos_job.py FOLDER MASTER RECORDS RATE

Two sources, two keyed operators in a row, a two-phase sink. The second operator writes down, for each key, the chain of
updates that it got: a lost, repeated or reordered one breaks the chain for ever.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
from pyspark.sql import SparkSession

import cutwater as cw
from cutwater.spark.session import quiet_logging

KEYS = 200
BUCKETS = 23


class Chain(cw.KeyedProcess):
    """Keyed by bucket; of each key in it the number of updates so far and the last count."""

    updates = cw.MapState("long", "long")
    last = cw.MapState("long", "long")

    def process(self, row: Any, ctx: Any) -> Iterator[tuple[int, ...]]:
        link = self.updates.get(row.k, 0) + 1
        before = self.last.get(row.k, 0)
        self.updates[row.k] = link
        self.last[row.k] = row.n
        yield row.k, link, before, row.n, row.total


def session(master: str, folder: Path) -> SparkSession:
    quiet = f"-Dlog4j2.configurationFile={quiet_logging()}"
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": quiet,
        "spark.executor.extraJavaOptions": quiet,
    }
    conf = cw.spark_conf(master)
    for key, value in settings.items():
        conf.set(key, value)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def pipeline(env: cw.Environment, folder: Path, records: int, rate: float) -> None:
    half = records // 2
    left = env.read(cw.sequence(half, rate=rate / 2), uid="left")
    right = env.read(cw.sequence(records - half, rate=rate / 2, start=half), uid="right")
    keyed = left.union(right).with_columns(k=pl.col("value") % KEYS).key_by("k")
    counts = keyed.agg(n=cw.count(), total=cw.sum("value")).uid("counts").with_columns(bucket=pl.col("k") % BUCKETS)
    chain = counts.key_by("bucket").process(Chain(), "k long, link long, before long, n long, total long").uid("chain")
    chain.write(cw.parquet_sink(folder / "out"), uid="out")


def main() -> None:
    folder, master, records, rate = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    env = cw.Environment(
        session(master, folder),
        parallelism=2,
        checkpointing=cw.Checkpointing("200ms", storage=f"file:{folder / 'checkpoints'}"),
        restart=cw.fixed_delay(attempts=100, delay="10ms"),
    )
    pipeline(env, folder, records, rate)
    job = env.start("chaos", restore="auto")
    try:
        result = job.wait()
    finally:
        (folder / "log.txt").open("a").write("\n".join([*job.log, ""]))
    told = {"status": result.status, "attempts": result.attempts, "checkpoints": result.checkpoints}
    (folder / "result.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
