"""What a checkpoint does to a stream at full speed: throughput, CPU, the longest hole in the output, the synchronous part.

Keyed running sums over a million keys, in one job that runs on: for some seconds it takes a checkpoint every second, then for as
long none, and so on. The speed of a shared machine drifts within minutes, so only neighbours are compared.
`--stop-the-world` takes the checkpoints by the naive algorithm that pauses the sources, lets everything drain, copies, and
resumes.
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
    alternating,
    arguments,
    cost_percent,
    environment,
    notes_folder,
    scratch_folder,
    session,
    spread_over_keys,
)
from bench.peers.measure import cpu_seconds, emit
from cutwater.checkpoint.statistics import CheckpointInfo, CheckpointStatus

ENDLESS = 10**15


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


def totals(env: cw.Environment, keys: int, folder: Path) -> None:
    numbers = env.read(cw.sequence(ENDLESS), uid="numbers")
    pairs = numbers.with_columns(k=spread_over_keys(keys), v=pl.col("value") % 100)
    sums = pairs.key_by("k").agg(n=cw.count(), total=cw.sum("v")).uid("totals")
    sums.map_batches(BatchTimes(str(folder)), "k long, n long, total long").write(cw.discard(), uid="dropped")


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Some seconds of the running job; times in microseconds."""

    checkpoints: bool
    began: int
    ended: int
    cpu: float
    taken: list[CheckpointInfo]

    def rows(self, logs: list[np.ndarray]) -> int:
        return sum(int(log[self._inside(log), 1].sum()) for log in logs)

    def batches(self, logs: list[np.ndarray]) -> int:
        return sum(int(self._inside(log).sum()) for log in logs)

    def longest_hole_ms(self, logs: list[np.ndarray]) -> float:
        """Of any subtask; a hole at the edge counts as far as it lies in the window."""
        edges = {"prepend": self.began, "append": self.ended}
        return max(float(np.diff(log[self._inside(log), 0], **edges).max()) for log in logs) / 1e3

    def _inside(self, log: np.ndarray) -> np.ndarray:
        return (log[:, 0] >= self.began) & (log[:, 0] < self.ended)


def run_window(job: cw.Job, seconds: float, *, checkpoints: bool) -> Window:
    began, cpu = now_us(), cpu_seconds()
    until = time.monotonic() + seconds
    due = time.monotonic()
    taken = []
    while time.monotonic() < until:
        if checkpoints:
            taken.append(job.trigger_checkpoint())
        due = min(until, due + 1.0)
        time.sleep(max(0.0, due - time.monotonic()))
    return Window(checkpoints, began, now_us(), cpu_seconds() - cpu, taken)


def rows_per_batch(windows: list[Window], logs: list[np.ndarray]) -> float:
    return sum(window.rows(logs) for window in windows) / sum(window.batches(logs) for window in windows)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--warm-up", type=float, default=45, help="seconds that do not count")
    parser.add_argument("--window", type=float, default=1, help="seconds with checkpoints, then as many without")
    parser.add_argument("--pairs", type=int, default=80, help="windows with checkpoints, and as many without")
    parser.add_argument("--stop-the-world", action="store_true")
    wanted = parser.parse_args()
    wanted.checkpoints = "1h"  # they are asked for
    with session() as spark, scratch_folder() as folder, notes_folder() as notes:
        env = environment(spark, wanted, folder)
        totals(env, wanted.keys, notes)
        job = env.start("pause", restore="fresh")
        job.trigger_checkpoint()  # when all have started
        run_window(job, wanted.warm_up, checkpoints=True)
        windows = [run_window(job, wanted.window, checkpoints=each) for each in alternating(wanted.pairs)]
        job.cancel()
        job.wait()
        logs = [np.frombuffer(path.read_bytes(), np.int64).reshape(-1, 2) for path in sorted(notes.glob("*.batches"))]
    with_checkpoints = [window for window in windows if window.checkpoints]
    without = [window for window in windows if not window.checkpoints]
    rates = {window: window.rows(logs) / (window.ended - window.began) * 1e6 for window in windows}
    slower = [rates[b] / rates[a] - 1 for a, b in zip(with_checkpoints, without, strict=True)]
    completed = [info for window in windows for info in window.taken if info.status is CheckpointStatus.COMPLETED]
    emit(
        "pause",
        "cutwater",
        f"{wanted.backend} parallelism={wanted.parallelism}" + (" stop-the-world" if wanted.stop_the_world else ""),
        pairs=wanted.pairs,
        window_s=wanted.window,
        rec_per_s=int(statistics.mean(rates[window] for window in with_checkpoints)),
        rec_per_s_without=int(statistics.mean(rates[window] for window in without)),
        rec_per_s_of_each=[(window.checkpoints, int(rates[window])) for window in windows],
        cost_percent=cost_percent(*([1 / rates[window] for window in each] for each in (with_checkpoints, without))),
        cost_percent_standard_error=statistics.stdev(slower) / len(slower) ** 0.5 * 100 if len(slower) > 1 else None,
        cpu_cost_percent=cost_percent(
            *([window.cpu / window.rows(logs) for window in each] for each in (with_checkpoints, without))
        ),
        rows_per_batch=int(rows_per_batch(with_checkpoints, logs)),
        rows_per_batch_without=int(rows_per_batch(without, logs)),
        longest_hole_ms=max(window.longest_hole_ms(logs) for window in with_checkpoints),
        longest_hole_without_ms=max(window.longest_hole_ms(logs) for window in without),
        sync_ms=statistics.median(info.sync_duration for info in completed) * 1e3,
        longest_sync_ms=max(info.sync_duration for info in completed) * 1e3,
        ck_completed=len(completed),
        ck_median_ms=statistics.median(info.duration for info in completed) * 1e3,
        state_bytes=max(info.state_bytes for info in completed),
    )


if __name__ == "__main__":
    main()
