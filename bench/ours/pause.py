"""What a checkpoint does to a stream at full speed: throughput, the longest hole in the output, the synchronous part.

Keyed running sums over a million keys. `--checkpoints 1s`, `off`, and `--stop-the-world`: the naive algorithm that pauses the
sources, lets everything drain, copies, and resumes. Only what arrives after every key is in the state counts.
"""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

import cutwater as cw
from bench.ours.arrivals import now_us
from bench.ours.session import arguments, environment, scratch_folder, session, spread_over_keys, variant
from bench.peers.measure import emit
from cutwater.checkpoint.statistics import CheckpointStatus


@dataclass(slots=True)
class BatchTimes:
    """A function for ``map_batches``: notes when each batch arrived and how many rows it had."""

    folder: str
    _file: int | None = field(default=None, init=False)

    def __call__(self, batch: pl.DataFrame) -> pl.DataFrame:
        if self._file is None:
            name = os.path.join(self.folder, f"{os.getpid()}-{time.monotonic_ns()}.batches")
            self._file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(self._file, np.array([now_us(), batch.height], dtype=np.int64).tobytes())
        return batch


def totals(env: cw.Environment, records: int, keys: int, folder: Path) -> None:
    numbers = env.read(cw.sequence(records), uid="numbers")
    pairs = numbers.with_columns(k=spread_over_keys(keys), v=pl.col("value") % 100)
    sums = pairs.key_by("k").agg(n=cw.count(), total=cw.sum("v")).uid("totals")
    sums.map_batches(BatchTimes(str(folder)), "k long, n long, total long").write(cw.discard(), uid="dropped")


def steady(folder: Path, filling: int) -> list[np.ndarray]:
    """For each subtask the (time, rows) pairs behind the first ``filling`` rows of all."""
    logs = [np.frombuffer(path.read_bytes(), np.int64).reshape(-1, 2) for path in sorted(folder.glob("*.batches"))]
    share = filling / max(1, len(logs))
    return [log[np.cumsum(log[:, 1]) > share] for log in logs]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--n", type=int, default=60_000_000)
    parser.add_argument("--stop-the-world", action="store_true")
    wanted = parser.parse_args()
    with session() as spark:
        for records in (2_000_000, wanted.n):
            with scratch_folder() as folder:
                env = environment(spark, wanted, folder)
                totals(env, records, wanted.keys, folder)
                job = env.start("pause", restore="fresh")
                job.wait()
                logs = steady(folder, 2 * wanted.keys)
    completed = [
        info for info in job.checkpoints() if info.status is CheckpointStatus.COMPLETED and info.kind != "final"
    ]
    rows = sum(int(log[:, 1].sum()) for log in logs)
    seconds = (max(log[-1, 0] for log in logs) - min(log[0, 0] for log in logs)) / 1e6
    emit(
        "pause",
        "cutwater",
        variant(wanted) + (" stop-the-world" if wanted.stop_the_world else ""),
        n=wanted.n,
        rec_per_s=int(rows / seconds),
        longest_hole_ms=max(float(np.diff(log[:, 0]).max()) for log in logs) / 1e3,
        longest_sync_ms=max((part.sync_duration for info in completed for part in info.subtasks), default=0.0) * 1e3,
        ck_completed=len(completed),
        ck_median_ms=float(np.median([info.duration for info in completed])) * 1e3 if completed else None,
        state_bytes=max((info.state_bytes for info in completed), default=0),
    )


if __name__ == "__main__":
    main()
