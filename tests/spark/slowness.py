"""A job whose sink cannot keep up with its source."""

import time
from pathlib import Path

import polars as pl

import cutwater as cw


def dawdle(rows: pl.DataFrame) -> pl.DataFrame:
    """Some 100 thousand rows a second; the source could give a hundred times as many."""
    time.sleep(rows.height / 100_000)
    return rows


def slow_job(folder: Path) -> cw.Environment:
    env = cw.Environment(
        parallelism=2,
        checkpointing=cw.Checkpointing("1s", storage=f"file:{folder / 'checkpoints'}"),
        restart=cw.no_restart(),
    )
    numbers = env.read(cw.sequence(None), uid="fast").with_columns(k=pl.col("value") % 1000)
    slow = numbers.rebalance().map_batches(dawdle, "value long, k long").uid("slow")
    slow.write(cw.discard(), uid="out")
    return env
