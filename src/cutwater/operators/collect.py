"""``collect``: rows that end up in the driver, exactly once.

The rows are kept in the checkpoints until the driver is sure to have stored them: CheckpointCompleted(n+1) is sent only after
the driver handled everything that CheckpointCompleted(n) made this operator send.
"""

import threading
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from cutwater.flow.ids import CheckpointId
from cutwater.operators.operator import Collector, Operator, OperatorContext, OperatorSnapshot
from cutwater.state.frozen import KEY_GROUP_COLUMN

CHECKPOINT_COLUMN = "cw_checkpoint"
_TABLE = "collected"


def stream_bytes(schema: pa.Schema, batches: list[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


class CollectOperator(Operator):
    """``open``, ``process`` and ``snapshot`` run on the loop, ``checkpoint_completed`` on the commit thread."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def open(self, ctx: OperatorContext) -> None:
        self._ctx = ctx
        self._lock = threading.Lock()
        self._current: list[pa.RecordBatch] = []
        self._pending: dict[CheckpointId, list[pa.RecordBatch]] = {}
        if ctx.restored is not None and _TABLE in ctx.restored.tables():
            for batch in ctx.restored.batches(_TABLE):
                self._restore(batch)
        self._deliver(max(self._pending, default=CheckpointId(0)))

    def _restore(self, batch: pa.RecordBatch) -> None:
        ids = batch.column(CHECKPOINT_COLUMN)
        for checkpoint in sorted(int(n) for n in ids.unique().to_numpy()):
            own = batch.filter(pc.equal(ids, pa.scalar(checkpoint))).select(self._schema.names)
            self._pending.setdefault(CheckpointId(checkpoint), []).append(own)

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        self._current.append(batch)

    def end_of_input(self, out: Collector, *, drain: bool) -> None:
        if not self._ctx.checkpointed:
            # Nothing is restored without checkpoints, so rows are handed over when all of them are there.
            self._ctx.driver.collected(self._ctx.uid, CheckpointId(0), stream_bytes(self._schema, self._current))
            self._current = []

    def snapshot(self, checkpoint: CheckpointId) -> OperatorSnapshot:
        with self._lock:
            if self._current:
                self._pending[checkpoint] = self._current
                self._current = []
            pending = dict(self._pending)
        return OperatorSnapshot(tables=(_PendingRows(self._schema, pending, self._ctx.key_groups.first),))

    def checkpoint_completed(self, checkpoint: CheckpointId) -> None:
        self._deliver(checkpoint)

    def _deliver(self, checkpoint: CheckpointId) -> None:
        """Send what this checkpoint made visible; let go of what an earlier one already had."""
        with self._lock:
            due = {n: batches for n, batches in self._pending.items() if n <= checkpoint}
            sent = getattr(self, "_sent_up_to", CheckpointId(0))
            for n in [n for n in due if n <= sent]:
                del self._pending[n]
            self._sent_up_to = max(sent, checkpoint)
        for n, batches in sorted(due.items()):
            if n > sent:
                self._ctx.driver.collected(self._ctx.uid, n, stream_bytes(self._schema, batches))


class _PendingRows:
    """The frozen form: rows with the checkpoint that makes them visible, owned by this subtask's first key group."""

    name = _TABLE

    def __init__(self, schema: pa.Schema, pending: dict[CheckpointId, list[pa.RecordBatch]], key_group: int) -> None:
        self.schema = schema.append(pa.field(CHECKPOINT_COLUMN, pa.int64())).append(
            pa.field(KEY_GROUP_COLUMN, pa.int32())
        )
        self._pending = pending
        self._key_group = key_group

    def batches(self) -> Iterator[pa.RecordBatch]:
        for checkpoint, batches in self._pending.items():
            for batch in batches:
                count = batch.num_rows
                columns = [
                    *batch.columns,
                    pa.array([checkpoint], pa.int64()).take(pa.array([0] * count)),
                    pa.array([self._key_group], pa.int32()).take(pa.array([0] * count)),
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def release(self) -> None:
        """Nothing is shared with the loop but immutable batches."""
