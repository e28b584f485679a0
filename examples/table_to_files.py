"""A bounded job: a DataFrame through Python to files. Killed on its way, it goes on from there, not from the beginning.

    cutwater run examples/table_to_files.py --set interval=500ms     # kill -9 it, then run it again

The DataFrame is computed once and kept with the job's checkpoints: computed again after a crash, it might differ. Whoever
reads the output folder sees complete rows only, each of them once.
"""

import os
import time

import polars as pl

import cutwater as cw

ROWS = int(os.environ.get("ROWS", "100000"))
OUTPUT = os.environ.get("OUTPUT", "output/scores")
SECONDS = float(os.environ.get("SECONDS", "10"))
"""How long the model takes for all rows: so that there is time to kill it."""


def model(frame: pl.DataFrame) -> pl.DataFrame:
    time.sleep(SECONDS * frame.height / ROWS)
    return frame.select("id", score=pl.col("feature") / 97)


def pipeline(env, model=model):
    table = env.spark.range(0, ROWS, 1, 32).selectExpr("id", "id % 97 AS feature")
    scores = env.read(cw.spark_table(table), uid="table").map_batches(model, "id long, score double").uid("scores")
    scores.write(cw.parquet_sink(OUTPUT), uid="out")
