"""A job whose sink cannot keep up with its source."""

import time
from pathlib import Path

import polars as pl

import cutwater as cw

PARALLELISM = 2
SLOW_RECORDS_PER_SECOND = 100_000 * PARALLELISM
"""At most. The source could give a hundred times as many."""


def dawdle(rows: pl.DataFrame) -> pl.DataFrame:
    time.sleep(rows.height / (SLOW_RECORDS_PER_SECOND / PARALLELISM))
    return rows


def slow_records(job: cw.Job) -> int:
    return sum(progress.records_in for subtask, progress in job.progress.items() if subtask.vertex == "slow")


def slow_job(folder: Path) -> cw.Environment:
    env = cw.Environment(
        parallelism=PARALLELISM,
        checkpointing=cw.Checkpointing("1s", storage=f"file:{folder / 'checkpoints'}"),
        restart=cw.no_restart(),
    )
    numbers = env.read(cw.sequence(None), uid="fast").with_columns(k=pl.col("value") % 1000)
    slow = numbers.rebalance().map_batches(dawdle, "value long, k long").uid("slow")
    slow.write(cw.discard(), uid="out")
    return env
