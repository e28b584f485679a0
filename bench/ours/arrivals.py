"""When records arrived at the end of a pipeline: noted inside the subtask, read after the job.

The subtask writes pairs of 64-bit numbers (made at, arrived at; microseconds since the epoch) to a file of its own, one
unbuffered write per batch, so that a SIGKILL loses nothing that had arrived. A new attempt writes new files.
"""

import os
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

PAIR_BYTES = 16


def now_us() -> int:
    return time.time_ns() // 1000


@dataclass(slots=True)
class ArrivalLog:
    """A function for ``map_batches``: passes its input through and notes each row's ``made_at`` and the time."""

    folder: str
    _file: int | None = field(default=None, init=False)

    def __call__(self, batch: pl.DataFrame) -> pl.DataFrame:
        if self._file is None:
            name = f"{os.getpid()}-{uuid.uuid4().hex}.arrivals"
            self._file = os.open(os.path.join(self.folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        pairs = np.empty((batch.height, 2), dtype=np.int64)
        pairs[:, 0] = batch["made_at"].to_numpy()
        pairs[:, 1] = now_us()
        os.write(self._file, pairs.tobytes())
        return batch


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What one subtask of one attempt wrote: one row per record, at least one."""

    name: str
    pid: int
    made_at: npt.NDArray[np.int64]
    arrived_at: npt.NDArray[np.int64]


def log_names(folder: Path) -> set[str]:
    """The logs that hold at least one record."""
    return {path.name for path in folder.glob("*.arrivals") if path.stat().st_size >= PAIR_BYTES}


def read_arrivals(folder: Path) -> list[Arrivals]:
    found = []
    for path in sorted(folder.glob("*.arrivals")):
        data = path.read_bytes()
        pairs = np.frombuffer(data[: len(data) // PAIR_BYTES * PAIR_BYTES], dtype=np.int64).reshape(-1, 2)
        if len(pairs):
            found.append(Arrivals(path.name, int(path.name.partition("-")[0]), pairs[:, 0], pairs[:, 1]))
    return found
