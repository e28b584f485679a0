"""Two sources, an operator that both share, two sinks; what one source reads is slow to get there.

Records of the fast source come at a steady rate. Those of the slow one pass a function that takes milliseconds for each, and
pile up before it: an aligned barrier waits behind them, and the shared operator meanwhile holds back what is fast. Measured is
the longest hole in the output of the fast path while a checkpoint is taken, cut aligned and unaligned, and without any.
"""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pyspark.sql import SparkSession

import cutwater as cw
from bench.ours.arrivals import now_us
from bench.ours.jam import MODES
from bench.ours.pause import BatchTimes, Window
from bench.ours.session import arguments, notes_folder, scratch_folder, session
from bench.peers.measure import Meter, emit, note

SCHEMA = "value long, text string, fast boolean"
ROW_BYTES = 4096


class Slow(cw.Process):
    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        time.sleep(0.002)
        yield row


def shared(batch: pl.DataFrame) -> pl.DataFrame:
    return batch


def two_sinks(env: cw.Environment, rate: int, notes: Path) -> None:
    fast = env.read(cw.sequence(None, rate=rate), uid="fast").with_columns(text=pl.lit("x"), fast=pl.lit(True))
    wide = env.read(cw.sequence(None), uid="slow").with_columns(text=pl.lit("x" * ROW_BYTES), fast=pl.lit(False))
    slow = wide.rebalance().process(Slow, SCHEMA).uid("slowly")
    both = fast.union(slow).rebalance().map_batches(shared, SCHEMA).uid("shared")
    noted = both.filter("fast").map_batches(BatchTimes(str(notes)), SCHEMA)
    noted.write(cw.discard(), uid="fast-sink")
    both.filter("not fast").write(cw.discard(), uid="slow-sink")


def windows_of(spark: SparkSession, mode: str, wanted: Any) -> tuple[list[Window], list[np.ndarray]]:
    """One checkpoint in every other window; each lasts as long as the checkpoint, and ``wanted.window`` at least."""
    with scratch_folder() as folder, notes_folder() as notes:
        env = cw.Environment(
            spark=spark,
            parallelism=wanted.parallelism,
            checkpointing=cw.Checkpointing("1h", storage=f"file:{folder}", timeout="5 min", **MODES[mode]),
            restart=cw.no_restart(),
        )
        two_sinks(env, wanted.rate, notes)
        job = env.start(f"two-sinks-{mode}", restore="fresh")
        job.trigger_checkpoint()  # when all have started
        time.sleep(wanted.warm_up)
        windows = []
        for number in range(2 * wanted.pairs):
            began, until = now_us(), time.monotonic() + wanted.window
            taken = [job.trigger_checkpoint()] if number % 2 == 0 else []
            time.sleep(max(0.0, until - time.monotonic()))
            windows.append(Window(bool(taken), began, now_us(), 0.0, taken))
        job.cancel()
        job.wait()
        logs = [np.frombuffer(path.read_bytes(), np.int64).reshape(-1, 2) for path in sorted(notes.glob("*.batches"))]
    return windows, logs


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rate", type=int, default=50_000, help="records a second of the fast source")
    parser.add_argument("--warm-up", type=float, default=10, help="seconds in which the slow path fills")
    parser.add_argument("--window", type=float, default=4)
    parser.add_argument("--pairs", type=int, default=3)
    wanted = parser.parse_args()
    fields: dict[str, float] = {}
    with Meter() as meter, session() as spark:
        for mode in ("aligned", "unaligned"):
            windows, logs = windows_of(spark, mode, wanted)
            holes = {
                taken: [each.longest_hole_ms(logs) for each in windows if each.checkpoints is taken]
                for taken in (True, False)
            }
            durations = [info.duration for each in windows for info in each.taken]
            prefix = "" if mode == "unaligned" else f"{mode}_"
            note(
                f"  {mode}: holes {[int(hole) for hole in holes[True]]} ms, without {[int(h) for h in holes[False]]} ms"
            )
            fields |= {
                f"{prefix}hole_ms": statistics.median(holes[True]),
                f"{prefix}longest_hole_ms": max(holes[True]),
                f"{prefix}hole_without_ms": statistics.median(holes[False]),
                f"{prefix}e2e_ms": statistics.median(durations) * 1e3,
            }
    fields["aligned_times"] = fields["aligned_hole_ms"] / fields["hole_ms"]
    emit("two-sinks", "cutwater", f"rate={wanted.rate}", pairs=wanted.pairs, others_cores=meter.others, **fields)


if __name__ == "__main__":
    main()
