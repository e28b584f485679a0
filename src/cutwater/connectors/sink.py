"""What a sink is. The guarantee of a path is that of its weakest part, and sinks state theirs here."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any

import pyarrow as pa

Json = Any


class Delivery(Enum):
    """What a sink does to each record when the job fails and resumes."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


@dataclass(slots=True)
class SinkContext:
    """Where a sink runs. ``checkpoint_id`` is set around ``prepare``: the checkpoint that will commit it."""

    job: str
    uid: str
    subtask: int
    parallelism: int
    attempt: int
    incarnation: str
    schema: pa.Schema
    checkpoint_id: int | None = None
    print_lines: Callable[[Sequence[str]], None] | None = None
    """Where ``print_sink`` writes, so that lines reach the driver; None: this process's standard output."""
    visible_up_to: int | None = None
    """The last checkpoint whose output may be visible, as far as the checkpoint storage knows when the attempt begins. A sink that
    finds output of a later one under this incarnation and uid meets a storage that went back in time: rows would be written twice.
    None: nobody asked the storage."""


class Sink(ABC):
    """Describes a sink; pickled to the workers before ``open``."""

    delivery: Delivery = Delivery.AT_LEAST_ONCE

    def check(self, schema: pa.Schema) -> None:  # noqa: B027 (optional hook)
        """In the driver, before anything starts: raise ConfigError if this cannot work."""

    def describe(self) -> str:
        return type(self).__name__


class PlainSink(Sink):
    """Writes at once and keeps nothing: records since the last checkpoint repeat after a failure."""

    def open(self, ctx: SinkContext) -> None: ...

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None: ...

    def flush(self) -> None:
        """Before each checkpoint is acknowledged: what was written must be durable when it returns."""

    def close(self) -> None:
        """Once at the end, also after a failure in the same subtask. Not when the process is killed, as it is when the
        attempt ends because another subtask failed or the job is canceled."""


class TwoPhaseCommitSink(Sink):
    """Output bound to checkpoints: written, prepared at the barrier, committed when the checkpoint completed.

    ``begin``, ``write`` and (unless ``prepare_in_background``) ``prepare`` run on the subtask's loop; ``commit`` and
    ``abort`` on one commit thread. A committable is JSON: it is stored in the checkpoint, and another process may commit it.
    """

    delivery = Delivery.EXACTLY_ONCE
    transaction_timeout: timedelta | str | None = None
    """How long a prepared transaction lives in the outside system; None: for ever."""
    prepare_in_background: bool = False
    """True when ``prepare`` of one transaction may run beside ``begin`` and ``write`` of the next."""

    def open(self, ctx: SinkContext) -> None:
        """Once in each subtask and attempt, before anything else: connect here, not in ``__init__``."""

    def recover(self, committables: Sequence[Json]) -> None:
        """On every start, before commits: abort what this sink left open and no checkpoint lists."""

    @abstractmethod
    def begin(self, name: str) -> Any:
        """Open a transaction. ``name`` is unique over attempts, subtasks and checkpoints."""

    @abstractmethod
    def write(self, txn: Any, batch: pa.RecordBatch) -> None:
        """Add records to an open transaction. Nobody may see them yet."""

    @abstractmethod
    def prepare(self, txn: Any) -> Json | None:
        """Make it durable but invisible. None: nothing was written, there is nothing to commit."""

    @abstractmethod
    def commit(self, committable: Json) -> None:
        """Make it visible. Idempotent: it is repeated after a crash. Raise ``cw.CommitLost`` when it is gone for good."""

    @abstractmethod
    def abort(self, committable: Json) -> None:
        """Undo a prepared transaction that no checkpoint will commit."""

    def committed_everywhere(self, checkpoint_id: int, committables: Sequence[Json]) -> None:
        """In the driver, once every subtask committed this checkpoint. Idempotent; may be repeated."""

    def abandon(self, uid: str, incarnation: str, listed: Sequence[Json]) -> None:
        """In the driver, at every start once all subtasks run: remove what an earlier incarnation of the job left open or
        prepared under this uid. Its workers are dead. Committables ``listed`` stay: a checkpoint that somebody may restore
        lists them."""

    def close(self) -> None:
        """Once at the end, also after a failure in the same subtask. Not when the process is killed, as it is when the
        attempt ends because another subtask failed or the job is canceled."""
