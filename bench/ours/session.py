"""What every workload of ours needs: a warm local session and a folder for checkpoints."""

import argparse
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import polars as pl
from pyspark.sql import SparkSession

import cutwater as cw
from cutwater.spark.session import quiet_logging

_IN_MEMORY = "/dev/shm"

PRIME = 2654435761
"""Spreads a sequence over the keys; prime to every power of ten, so that each key is hit equally often."""


@contextmanager
def session(slots: int = 16, **settings: str) -> Iterator[SparkSession]:
    conf = cw.spark_conf(slots=slots, **settings)
    conf.set("spark.ui.enabled", "false").set("spark.driver.host", "127.0.0.1").set("spark.driver.memory", "2g")
    conf.set("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={quiet_logging()}")
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def scratch_folder(parent: str | None = None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cutwater-bench-", dir=parent) as folder:
        yield Path(folder)


def notes_folder() -> AbstractContextManager[Path]:
    """For what subtasks note down while they run: in memory, where the system has a folder there. On the disk of the
    checkpoints a write waits while the file system makes a checkpoint durable: the instrument would stop what it measures."""
    return scratch_folder(_IN_MEMORY if os.path.isdir(_IN_MEMORY) else None)


BACKENDS: Mapping[str, cw.StateBackend] = {
    "memory": cw.Memory(),
    "memory-incremental": cw.Memory(incremental=True),
    "rocksdb": cw.RocksDB(),
    "rocksdb-incremental": cw.RocksDB(incremental=True),
}


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--checkpoints", default="1s", help="the interval, or 'off'")
    parser.add_argument("--backend", choices=BACKENDS, default="memory")
    return parser


WARM_UPS = 4
"""Runs that do not count: the JVM's compiler is busy with their code for about 40 s, and what it takes is not ours."""


def alternating(pairs: int) -> list[bool]:
    """With checkpoints or without: True, False, False, True, ..., so that neither is always the later one of its pair."""
    return [(index % 4) in (0, 3) for index in range(2 * pairs)]


def cost_percent(with_checkpoints: list[float], without: list[float]) -> float:
    """What checkpoints cost, from figures per record (seconds, or CPU seconds) of runs that alternated in one session. Of each the
    median: one run that was disturbed decides nothing."""
    return (statistics.median(with_checkpoints) / statistics.median(without) - 1) * 100


def environment(
    spark: SparkSession, wanted: argparse.Namespace, folder: Path, *, checkpoints: bool = True
) -> cw.Environment:
    checkpointing = None
    if checkpoints and wanted.checkpoints != "off":
        checkpointing = cw.Checkpointing(
            interval=wanted.checkpoints,
            storage=f"file:{folder / 'checkpoints'}",
            stop_the_world=getattr(wanted, "stop_the_world", False),
        )
    return cw.Environment(
        spark=spark,
        parallelism=wanted.parallelism,
        checkpointing=checkpointing,
        state_backend=BACKENDS[wanted.backend],
        restart=cw.fixed_delay(attempts=3, delay="10ms"),
    )


def spread_over_keys(keys: int) -> pl.Expr:
    return pl.col("value") * PRIME % keys


def variant(wanted: argparse.Namespace) -> str:
    return f"{wanted.backend} checkpoints={wanted.checkpoints} parallelism={wanted.parallelism}"
