"""What every workload of ours needs: a warm local session and a folder for checkpoints."""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
from pyspark.sql import SparkSession

import cutwater as cw

PRIME = 2654435761
"""Spreads a sequence over the keys; prime to every power of ten, so that each key is hit equally often."""


@contextmanager
def session(slots: int = 16) -> Iterator[SparkSession]:
    spark = SparkSession.builder.config(conf=cw.spark_conf(slots=slots)).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cutwater-bench-") as folder:
        yield Path(folder)


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--checkpoints", default="1s", help="the interval, or 'off'")
    parser.add_argument("--backend", default="memory", choices=["memory", "rocksdb"])
    parser.add_argument("--unaligned", action="store_true")
    return parser


def environment(spark: SparkSession, wanted: argparse.Namespace, folder: Path) -> cw.Environment:
    checkpointing = None
    if wanted.checkpoints != "off":
        checkpointing = cw.Checkpointing(
            interval=wanted.checkpoints, storage=f"file:{folder / 'checkpoints'}", unaligned=wanted.unaligned
        )
    return cw.Environment(
        spark=spark,
        parallelism=wanted.parallelism,
        checkpointing=checkpointing,
        state_backend=cw.RocksDB(incremental=True) if wanted.backend == "rocksdb" else cw.Memory(incremental=True),
        restart=cw.fixed_delay(attempts=3, delay="0s"),
    )


def spread_over_keys(keys: int) -> pl.Expr:
    return pl.col("value") * PRIME % keys


def variant(wanted: argparse.Namespace) -> str:
    words = [wanted.backend, f"checkpoints={wanted.checkpoints}", f"parallelism={wanted.parallelism}"]
    return " ".join(words + ["unaligned"] * wanted.unaligned)
