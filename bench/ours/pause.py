"""What a checkpoint does to a stream at full speed: throughput, the longest hole in the output, the synchronous part.

Keyed running sums over a million keys. Runs with and without checkpoints alternate in one session; `--stop-the-world` takes
them by the naive algorithm that pauses the sources, lets everything drain, copies, and resumes. Only what arrives after every
key is in the state counts, except for the CPU, which is that of the whole run.
"""

import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

import cutwater as cw
from bench.ours.arrivals import now_us
from bench.ours.session import (
    WARM_UPS,
    arguments,
    cost_percent,
    environment,
    runs,
    scratch_folder,
    session,
    spread_over_keys,
    variant,
)
from bench.peers.measure import Meter, emit
from cutwater.checkpoint.statistics import CheckpointInfo, CheckpointStatus


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


@dataclass(slots=True)
class Measured:
    """What the runs of one kind showed, one entry a run."""

    seconds_per_record: list[float] = field(default_factory=list)
    cpu_per_record: list[float] = field(default_factory=list)
    holes_ms: list[float] = field(default_factory=list)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--n", type=int, default=40_000_000)
    parser.add_argument("--pairs", type=int, default=2, help="runs with checkpoints, and as many without")
    parser.add_argument("--stop-the-world", action="store_true")
    wanted = parser.parse_args()
    measured = {True: Measured(), False: Measured()}
    completed: list[CheckpointInfo] = []
    with session() as spark:
        for number, checkpoints in enumerate(runs(wanted.pairs)):
            with scratch_folder() as folder:
                env = environment(spark, wanted, folder, checkpoints=checkpoints)
                totals(env, wanted.n, wanted.keys, folder)
                with Meter() as meter:
                    job = env.start(f"pause-{number}", restore="fresh")
                    job.wait()
                logs = steady(folder, 2 * wanted.keys)
            if number >= WARM_UPS:
                rows = sum(int(log[:, 1].sum()) for log in logs)
                seconds = (max(log[-1, 0] for log in logs) - min(log[0, 0] for log in logs)) / 1e6
                measured[checkpoints].seconds_per_record.append(seconds / rows)
                measured[checkpoints].cpu_per_record.append(meter.cpu / wanted.n)
                measured[checkpoints].holes_ms.append(max(float(np.diff(log[:, 0]).max()) for log in logs) / 1e3)
                completed += [info for info in job.checkpoints() if info.status is CheckpointStatus.COMPLETED]
    with_checkpoints, without = measured[True], measured[False]
    emit(
        "pause",
        "cutwater",
        variant(wanted) + (" stop-the-world" if wanted.stop_the_world else ""),
        n=wanted.n,
        pairs=wanted.pairs,
        rec_per_s=int(1 / statistics.mean(with_checkpoints.seconds_per_record)),
        rec_per_s_without=int(1 / statistics.mean(without.seconds_per_record)),
        seconds_per_million_with=[1e6 * each for each in with_checkpoints.seconds_per_record],
        seconds_per_million_without=[1e6 * each for each in without.seconds_per_record],
        cost_percent=cost_percent(with_checkpoints.seconds_per_record, without.seconds_per_record),
        cpu_cost_percent=cost_percent(with_checkpoints.cpu_per_record, without.cpu_per_record),
        longest_hole_ms=statistics.median(with_checkpoints.holes_ms),
        longest_hole_without_ms=statistics.median(without.holes_ms),
        sync_ms=statistics.median(info.sync_duration for info in completed) * 1e3,
        longest_sync_ms=max(info.sync_duration for info in completed) * 1e3,
        ck_completed=len(completed),
        ck_median_ms=statistics.median(info.duration for info in completed) * 1e3,
        state_bytes=max(info.state_bytes for info in completed),
    )


if __name__ == "__main__":
    main()
