"""``collect``: rows that end up in the driver, exactly once.

The rows are kept in the checkpoints until the driver is sure to have stored them: CheckpointCompleted(n+1) is sent only after
the driver handled everything that CheckpointCompleted(n) made this operator send.
"""

import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from cutwater.flow.ids import CheckpointId
from cutwater.operators.operator import Collector, Operator, OperatorContext, OperatorSnapshot
from cutwater.state.frozen import KEY_GROUP_COLUMN

_TABLE = "collected"
_FIELDS: dict[str, pa.DataType] = {
    "checkpoint": pa.int64(),
    "writer": pa.int32(),
    "rows": pa.large_binary(),
    KEY_GROUP_COLUMN: pa.int32(),
}
_SCHEMA = pa.schema(_FIELDS)


class _Portion:
    """The rows that one checkpoint makes visible, of the subtask that wrote them. Encoded once: repeats are the same bytes."""

    def __init__(
        self, checkpoint: CheckpointId, writer: int, schema: pa.Schema, batches: Sequence[pa.RecordBatch]
    ) -> None:
        self.checkpoint = checkpoint
        self.writer = writer
        self._schema = schema
        self._batches = batches

    @cached_property
    def encoded(self) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as writer:
            for batch in self._batches:
                writer.write_batch(batch)
        return sink.getvalue().to_pybytes()


class _RestoredPortion(_Portion):
    def __init__(self, checkpoint: CheckpointId, writer: int, encoded: bytes) -> None:
        super().__init__(checkpoint, writer, pa.schema([]), ())
        self.__dict__["encoded"] = encoded


class CollectOperator(Operator):
    """``open``, ``process`` and ``snapshot`` run on the loop, ``checkpoint_completed`` on the commit thread."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._current: list[pa.RecordBatch] = []
        self._pending: list[_Portion] = []
        self._sent_up_to = CheckpointId(0)

    def open(self, ctx: OperatorContext) -> None:
        self._ctx = ctx
        self._lock = threading.Lock()
        if ctx.restored is not None and _TABLE in ctx.restored.tables():
            for batch in ctx.restored.batches(_TABLE):
                columns = (batch.column(name).to_pylist() for name in ("checkpoint", "writer", "rows"))
                self._pending.extend(
                    _RestoredPortion(CheckpointId(n or 0), w or 0, rows or b"")
                    for n, w, rows in zip(*columns, strict=True)
                )
        self._deliver(max((portion.checkpoint for portion in self._pending), default=CheckpointId(0)))

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        self._current.append(batch)

    def end_of_input(self, out: Collector, *, drain: bool) -> Iterator[None]:
        if not self._ctx.checkpointed:
            # Nothing is restored without checkpoints, so rows are handed over when all of them are there; the driver keeps
            # them for this attempt alone.
            self._send(_Portion(CheckpointId(0), self._ctx.subtask, self._schema, self._current))
            self._current = []
        yield from ()

    def snapshot(self, checkpoint: CheckpointId) -> OperatorSnapshot:
        with self._lock:
            if self._current:
                self._pending.append(_Portion(checkpoint, self._ctx.subtask, self._schema, self._current))
                self._current = []
            pending = tuple(self._pending)
        # Listed like a sink's output, because the driver shows them when the checkpoint completes: it is noted before.
        listed = [{"checkpoint": int(each.checkpoint), "value": {"writer": each.writer}} for each in pending]
        return OperatorSnapshot(
            inline={"committables": listed}, tables=(_PendingRows(pending, self._ctx.key_groups.first),)
        )

    def checkpoint_completed(self, checkpoint: CheckpointId) -> None:
        self._deliver(checkpoint)

    def _deliver(self, checkpoint: CheckpointId) -> None:
        """Send what this checkpoint made visible; let go of what an earlier one already had."""
        with self._lock:
            sent = self._sent_up_to
            due = [portion for portion in self._pending if sent < portion.checkpoint <= checkpoint]
            self._pending = [portion for portion in self._pending if portion.checkpoint > sent]
            self._sent_up_to = max(sent, checkpoint)
        for portion in due:
            self._send(portion)

    def _send(self, portion: _Portion) -> None:
        self._ctx.driver.collected(self._ctx.uid, portion.checkpoint, portion.writer, portion.encoded)


class _PendingRows:
    """The frozen form: one row for each portion, owned by this subtask's first key group."""

    name = _TABLE
    schema = _SCHEMA

    def __init__(self, pending: Sequence[_Portion], key_group: int) -> None:
        self._pending = pending
        self._key_group = key_group

    def batches(self) -> Iterator[pa.RecordBatch]:
        for portion in self._pending:
            columns: list[Any] = [
                pa.array([portion.checkpoint], pa.int64()),
                pa.array([portion.writer], pa.int32()),
                pa.array([portion.encoded], pa.large_binary()),
                pa.array([self._key_group], pa.int32()),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)

    def release(self) -> None:
        """Nothing is shared with the loop but immutable batches."""
