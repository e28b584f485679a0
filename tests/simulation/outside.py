"""An outside system with transactions, and a sink that writes to it: it outlives every simulated crash."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any

import pyarrow as pa

import cutwater as cw
from cutwater.connectors.sink import SinkContext
from cutwater.errors import CommitLost
from cutwater.rows import rows_of


@dataclass(slots=True)
class OutsideSystem:
    """``visible`` is what its readers see. It complains loudly of everything that a real one would refuse."""

    open: dict[str, list[Any]] = field(default_factory=dict)
    prepared: dict[str, list[Any]] = field(default_factory=dict)
    committed: list[str] = field(default_factory=list)
    visible: list[Any] = field(default_factory=list)
    checkpoint_of: dict[str, int] = field(default_factory=dict)
    completed: list[int] = field(default_factory=list)
    """Checkpoints that completed, as the world tells it."""
    is_restoring: bool = False

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Meanwhile each subtask commits what the restored checkpoint lists, whatever the others do."""
        self.is_restoring = True
        yield
        self.is_restoring = False

    def commit(self, name: str) -> None:
        if name in self.committed:
            return
        if name not in self.prepared:
            raise CommitLost(f"{name} is committed, but it was aborted or never prepared")
        if not self.is_restoring:
            # Rule 42: what an earlier checkpoint made visible is visible everywhere before this one begins.
            earlier = [other for other in self.prepared if self._covered_by(other) < self._covered_by(name)]
            if earlier:
                raise CommitLost(f"{name} is committed before {earlier}, which belong to earlier checkpoints")
        self.visible.extend(self.prepared.pop(name))
        self.committed.append(name)

    def _covered_by(self, name: str) -> float:
        """The checkpoint whose completion commits the transaction."""
        own = self.checkpoint_of[name]
        return min((checkpoint for checkpoint in self.completed if checkpoint >= own), default=inf)


class OutsideSink(cw.TwoPhaseCommitSink):
    """Finds its system by number: a copy of the sink, in a simulated worker, writes to the same one."""

    _numbers = itertools.count()
    systems: dict[int, OutsideSystem] = {}  # noqa: RUF012 (the registry that copies look into)

    def __init__(self) -> None:
        self.number = next(OutsideSink._numbers)
        OutsideSink.systems[self.number] = OutsideSystem()

    @property
    def system(self) -> OutsideSystem:
        return OutsideSink.systems[self.number]

    def open(self, ctx: SinkContext) -> None:
        self._ctx = ctx

    def _is_mine(self, name: str) -> bool:
        return name.startswith(f"{self._ctx.job}-{self._ctx.incarnation}-{self._ctx.uid}-{self._ctx.subtask}-")

    def recover(self, committables: Sequence[Any]) -> None:
        listed = {committable["name"] for committable in committables}
        for transactions in (self.system.open, self.system.prepared):
            for name in [name for name in transactions if self._is_mine(name) and name not in listed]:
                del transactions[name]

    def begin(self, name: str) -> str:
        self.system.open[name] = []
        return name

    def write(self, txn: str, batch: pa.RecordBatch) -> None:
        self.system.open[txn].extend(rows_of(batch))

    def prepare(self, txn: str) -> dict[str, Any]:
        self.system.prepared[txn] = self.system.open.pop(txn)
        assert self._ctx.checkpoint_id is not None
        self.system.checkpoint_of[txn] = self._ctx.checkpoint_id
        return {"name": txn}

    def commit(self, committable: dict[str, Any]) -> None:
        self.system.commit(committable["name"])

    def abort(self, committable: dict[str, Any]) -> None:
        self.system.prepared.pop(committable["name"], None)
