"""The transactions of one sink subtask, from begin to commit."""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from cutwater.connectors.sink import Json, SinkContext, TwoPhaseCommitSink
from cutwater.errors import CommitLost, CutwaterError, DataError, RestoreError
from cutwater.flow.ids import CheckpointId
from cutwater.rows import shortened

_CLOSE_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a commit that failed for an unknown reason is tried, and how long to wait: doubled each time."""

    attempts: int = 5
    first_delay: timedelta = timedelta(milliseconds=200)


@dataclass(slots=True, eq=False)
class _Swapped:
    """A transaction that a cut closed: it waits to be prepared, then for a checkpoint to complete."""

    checkpoint: CheckpointId
    txn: Any
    committable: Json = None
    prepared: bool = False
    failure: Exception | None = None


class Transactions:
    """``write`` and ``swap`` run on the loop, ``prepare`` there or on the snapshot thread, ``commit`` on the commit thread.

    Nothing leaves the list of pending transactions until its commit returned. Notifications may be lost, late or repeated
    and checkpoints aborted: the next checkpoint lists what is still pending, and its completion commits all of it.
    """

    def __init__(self, sink: TwoPhaseCommitSink, ctx: SinkContext, retry: Retry) -> None:
        self._sink = sink
        self._ctx = ctx
        self._retry = retry
        self._open: Any = None
        self._is_open = False
        self._begun = 0
        self._pending: list[_Swapped] = []
        self._list = threading.Lock()
        self._preparing = threading.Lock()
        self._committing = threading.Lock()
        self._closed = threading.Event()

    def restore(self, inlines: Sequence[Json]) -> None:
        """Abort what no checkpoint lists, then commit what the restored one does."""
        listed = [entry for inline in inlines if inline is not None for entry in self._entries(inline)]
        listed.sort(key=lambda entry: entry.checkpoint)
        self._sink.recover([entry.committable for entry in listed])
        self._pending = listed
        if listed:
            self.commit(listed[-1].checkpoint)

    def _entries(self, inline: Json) -> list[_Swapped]:
        try:
            return [
                _Swapped(CheckpointId(int(entry["checkpoint"])), None, entry["value"], prepared=True)
                for entry in inline["committables"]
            ]
        except (TypeError, KeyError, ValueError):
            raise RestoreError(
                f"{self._here()}: the checkpoint holds {shortened(inline)} for this uid, which is not the state of a sink. "
                "Was the uid given to another operator?"
            ) from None

    def write(self, batch: pa.RecordBatch) -> None:
        if not self._is_open:
            self._begun += 1
            self._open = self._sink.begin(self._name())
            self._is_open = True
        self._sink.write(self._open, batch)

    def _name(self) -> str:
        """Unique over incarnations, attempts, subtasks and checkpoints; a zombie can never reuse a living one's."""
        ctx = self._ctx
        return f"{ctx.job}-{ctx.incarnation}-{ctx.uid}-{ctx.subtask}-{ctx.attempt}-{self._begun}"

    def swap(self, checkpoint: CheckpointId) -> None:
        """The cut: what was written so far belongs to ``checkpoint``."""
        if self._is_open:
            with self._list:
                self._pending.append(_Swapped(checkpoint, self._open))
            self._open, self._is_open = None, False

    def prepare(self, checkpoint: CheckpointId) -> Json:
        """Prepare all that was swapped up to ``checkpoint`` and list all that is not committed for sure.

        Also what an aborted checkpoint swapped: it may have been aborted before its turn to prepare came.
        """
        with self._preparing:
            for entry in self._up_to(checkpoint):
                if not entry.prepared:
                    self._prepare(entry)
        listed = [entry for entry in self._up_to(checkpoint) if entry.prepared]
        return {"committables": [{"checkpoint": int(entry.checkpoint), "value": entry.committable} for entry in listed]}

    def _prepare(self, entry: _Swapped) -> None:
        if entry.failure is not None:
            raise entry.failure  # what became of it is unknown: only a restart from an older checkpoint is safe
        self._ctx.checkpoint_id = int(entry.checkpoint)
        try:
            entry.committable = self._as_json(self._sink.prepare(entry.txn))
        except Exception as error:
            entry.failure = error
            raise
        finally:
            self._ctx.checkpoint_id = None
        entry.txn, entry.prepared = None, True
        if entry.committable is None:
            self._forget(entry)

    def _as_json(self, committable: Json) -> Json:
        """The same value that a restore would read: ``commit`` sees no difference."""
        try:
            return json.loads(json.dumps(committable))
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{self._here()}: prepare returned {shortened(committable)}, which is not JSON ({error}). "
                "A committable is stored in the checkpoint and may be committed by another process."
            ) from None

    def commit(self, checkpoint: CheckpointId) -> None:
        """Commit everything up to ``checkpoint``, oldest first. Returns when it is done or raises."""
        with self._committing:
            for entry in self._up_to(checkpoint):
                if entry.prepared:
                    if self._closed.is_set():
                        raise CutwaterError(
                            f"{self._here()}: closed before checkpoint {entry.checkpoint} was committed"
                        )
                    self._commit(entry)
                    self._forget(entry)

    def _commit(self, entry: _Swapped) -> None:
        delay = self._retry.first_delay.total_seconds()
        for attempt in range(1, self._retry.attempts + 1):
            try:
                self._sink.commit(entry.committable)
                return
            except CommitLost:
                raise
            except Exception as error:
                if attempt == self._retry.attempts or self._closed.wait(delay):
                    raise CutwaterError(
                        f"{self._here()}: commit of checkpoint {entry.checkpoint} failed {attempt} times: "
                        f"{type(error).__name__}: {error}. The next attempt of the job commits it again: "
                        f"{shortened(entry.committable)}"
                    ) from error
                delay *= 2

    def _up_to(self, checkpoint: CheckpointId) -> list[_Swapped]:
        with self._list:
            return [entry for entry in self._pending if entry.checkpoint <= checkpoint]

    def _forget(self, entry: _Swapped) -> None:
        with self._list:
            self._pending.remove(entry)

    def close(self) -> None:
        """Let a running commit end, but not its retries. The open transaction is left to the next attempt's ``recover``."""
        self._closed.set()
        if self._committing.acquire(timeout=_CLOSE_PATIENCE):
            self._committing.release()
        self._open, self._is_open = None, False

    def _here(self) -> str:
        return f"sink {self._ctx.uid!r} of job {self._ctx.job!r}, subtask {self._ctx.subtask}"
