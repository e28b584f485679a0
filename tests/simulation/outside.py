"""An outside system with transactions, and a sink that writes to it: it outlives every simulated crash."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import cutwater as cw
from cutwater.connectors.sink import SinkContext
from cutwater.rows import rows_of


@dataclass(slots=True)
class OutsideSystem:
    """``visible`` is what its readers see. It complains loudly of everything that a real one would refuse."""

    open: dict[str, list[Any]] = field(default_factory=dict)
    prepared: dict[str, list[Any]] = field(default_factory=dict)
    committed: list[str] = field(default_factory=list)
    visible: list[Any] = field(default_factory=list)
    commits: list[tuple[int, int]] = field(default_factory=list)
    """(checkpoint, subtask) of every commit, in their order."""

    def commit(self, name: str, checkpoint: int, subtask: int) -> None:
        if name in self.committed:
            return
        assert name in self.prepared, f"{name} is committed, but it was aborted or never prepared"
        self.visible.extend(self.prepared.pop(name))
        self.committed.append(name)
        self.commits.append((checkpoint, subtask))


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
        return {"name": txn, "checkpoint": self._ctx.checkpoint_id, "subtask": self._ctx.subtask}

    def commit(self, committable: dict[str, Any]) -> None:
        self.system.commit(committable["name"], committable["checkpoint"], committable["subtask"])

    def abort(self, committable: dict[str, Any]) -> None:
        self.system.prepared.pop(committable["name"], None)
