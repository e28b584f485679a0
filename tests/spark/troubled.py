"""Functions and sources that get into trouble on purpose. In a module of their own: workers import it by name."""

import ctypes
import os
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

import cutwater as cw

NUMBERS = pa.schema([pa.field("value", pa.int64(), nullable=False)])


def divide(row: Any) -> tuple[float]:
    return (1 / (row.value - 700),)  # the line that the report must name


class StuckOnce(cw.Process):
    """One subtask hangs inside a call that holds the interpreter, and another one fails beside it; once.

    Every ``open`` notes whether the one that hung is still alive: a zombie that met its successor would be seen.
    """

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    def open(self, ctx: Any) -> None:
        self.subtask = ctx.subtask
        self.stuck, self.failed = self.notes / "stuck", self.notes / "failed"
        if self.stuck.exists():
            alive = psutil.pid_exists(int(self.stuck.read_text()))
            (self.notes / f"opened-{ctx.attempt}-{ctx.subtask}").write_text("a zombie lives" if alive else "alone")

    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        if self.subtask == 0 and not self.stuck.exists():
            self._hang()
        if self.subtask == 1 and self.stuck.exists() and not self.failed.exists():
            self.failed.touch()
            raise ValueError("the other one is stuck, and this one fails")
        yield row

    def _hang(self) -> None:
        writing = self.notes / "stuck.writing"
        writing.write_text(str(os.getpid()))
        writing.rename(self.stuck)
        # PyDLL keeps the GIL: neither signal handlers nor other threads of this process can do anything.
        ctypes.PyDLL(None).sleep(100)
        (self.notes / "woke").touch()


class SilentSource(cw.Source):
    """Numbers; once the file ``hush`` exists, the reader of the first split is stuck until ``seconds`` have passed."""

    schema = NUMBERS

    def __init__(self, rows: int, hush: Path, seconds: float) -> None:
        self.rows, self.hush, self.seconds = rows, hush, seconds

    def splits(self) -> list[int]:
        return [0, 1]

    def open(self, split: int, position: int | None, ctx: Any) -> "SilentReader":
        return SilentReader(self, split, position or 0)


class SilentReader(cw.SplitReader):
    def __init__(self, source: SilentSource, split: int, emitted: int) -> None:
        self._source, self._split, self._emitted = source, split, emitted

    def next_batch(self, max_rows: int, timeout: timedelta) -> Any:
        source = self._source
        if self._emitted >= source.rows:
            return cw.END
        begun, over = source.hush.with_suffix(".begun"), source.hush.with_suffix(".over")
        if self._split == 0 and source.hush.exists() and not over.exists():
            begun.touch()
            time.sleep(source.seconds)
            over.touch()
        if not over.exists() and self._emitted >= source.rows // 2:
            time.sleep(timeout.total_seconds())
            return None
        rows = min(1000, source.rows - self._emitted)
        first = self._split * source.rows + self._emitted
        self._emitted += rows
        return pa.record_batch([pa.array(np.arange(first, first + rows))], schema=NUMBERS)

    def position(self) -> int:
        return self._emitted


class ForgetfulSink(cw.TwoPhaseCommitSink):
    """Its outside system has forgotten every transaction by the time it should be committed."""

    def begin(self, name: str) -> str:
        return name

    def write(self, txn: str, batch: pa.RecordBatch) -> None: ...

    def prepare(self, txn: str) -> str:
        return txn

    def commit(self, committable: str) -> None:
        raise cw.CommitLost(f"transaction {committable} has expired")

    def abort(self, committable: str) -> None: ...


@dataclass(frozen=True)
class StuckInRestore:
    """A backend whose stores stop in the middle of their first takeover of stored files, and say who they are."""

    backend: cw.RocksDB
    notes: Path

    @property
    def incremental(self) -> bool:
        return self.backend.incremental

    @property
    def asynchronous(self) -> bool:
        return self.backend.asynchronous

    def open(self, uid: str, key_groups: Any, max_parallelism: int) -> "StoreStuckInRestore":
        return StoreStuckInRestore(self.backend.open(uid, key_groups, max_parallelism), self.notes)


class StoreStuckInRestore:
    def __init__(self, store: Any, notes: Path) -> None:
        self._store = store
        self._notes = notes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def resume(self, checkpoint: Any, state: Any) -> Collection[str]:
        found: Collection[str] = self._store.resume(checkpoint, StuckFetch(state, self._notes))
        return found


class StuckFetch:
    def __init__(self, state: Any, notes: Path) -> None:
        self.stored = state.stored
        self._state = state
        self._notes = notes

    def fetch(self, file: Any, path: str) -> None:
        self._state.fetch(file, path)
        stuck = self._notes / "restoring"
        if not stuck.exists():
            writing = self._notes / f"restoring.{os.getpid()}"
            writing.write_text(str(os.getpid()))
            writing.rename(stuck)
            time.sleep(100)
