"""Elements as rows of the exchange: few and large, ``(target, channel, kind, seq, mark, payload)``.

``seq`` counts per channel, so that a gap or a repeat is seen; ``mark`` is the checkpoint id of a barrier or the watermark of
data. A data payload is one Arrow IPC record batch without its schema, which both ends know from the plan.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Protocol

import pyarrow as pa

from cutwater.flow.ids import ChannelId, CheckpointId
from cutwater.flow.watermarks import MIN_WATERMARK, Milliseconds

EXCHANGE_DDL = "target int, channel int, kind int, seq long, mark long, payload binary"
_FIELDS: dict[str, pa.DataType] = {
    "target": pa.int32(),
    "channel": pa.int32(),
    "kind": pa.int32(),
    "seq": pa.int64(),
    "mark": pa.int64(),
    "payload": pa.binary(),
}
EXCHANGE_SCHEMA = pa.schema(_FIELDS)


class RowKind(IntEnum):
    DATA = 0
    BARRIER = 1
    WATERMARK = 2
    IDLE = 3
    END = 4
    PAD = 5
    """Pushes the row before it through Spark's look-ahead; dropped by the receiver (spark/transport.py owns pads)."""


class PayloadAside(Protocol):
    """A payload that is not in memory."""

    @property
    def size(self) -> int: ...

    def read(self) -> "pa.Buffer": ...


REPLAYED = -1
"""In place of a number in the sequence of its channel."""


@dataclass(slots=True)
class Row:
    """One row of the exchange. ``target`` is a partition of the next level.

    ``payload`` may be put aside at any time while other threads read the row: they call ``read``, and what is aside stays so.
    """

    target: int
    channel: ChannelId
    kind: RowKind
    seq: int
    mark: int
    payload: "pa.Buffer | PayloadAside"
    behind: CheckpointId = CheckpointId(0)
    """Noted by the receiver, not sent: the last barrier that its channel had delivered before it."""

    @property
    def size(self) -> int:
        return int(self.payload.size)

    @property
    def is_replayed(self) -> bool:
        """Not sent in this attempt: the restored checkpoint held it."""
        return self.seq == REPLAYED

    def read(self) -> "pa.Buffer":
        payload = self.payload
        return payload if isinstance(payload, pa.Buffer) else payload.read()


@dataclass(frozen=True, slots=True)
class BarrierNote:
    """What a barrier says beside the id of its checkpoint. ``unaligned``: its sender did not wait for other barriers, and
    neither must whoever receives it."""

    triggered_at: float
    savepoint: bool
    unaligned: bool


_EMPTY = pa.py_buffer(b"")
_KIND = list(_FIELDS).index("kind")
_ONE_PAD = [int(RowKind.PAD)]


def data_row(
    target: int, channel: ChannelId, seq: int, batch: pa.RecordBatch, watermark: Milliseconds = MIN_WATERMARK
) -> Row:
    return Row(target, channel, RowKind.DATA, seq, watermark, batch.serialize())


def watermark_row(target: int, channel: ChannelId, seq: int, watermark: Milliseconds) -> Row:
    return Row(target, channel, RowKind.WATERMARK, seq, watermark, _EMPTY)


def idle_row(target: int, channel: ChannelId, seq: int) -> Row:
    return Row(target, channel, RowKind.IDLE, seq, 0, _EMPTY)


def barrier_row(
    target: int,
    channel: ChannelId,
    seq: int,
    checkpoint: CheckpointId,
    triggered_at: float,
    *,
    savepoint: bool = False,
    unaligned: bool = False,
) -> Row:
    told = asdict(BarrierNote(triggered_at, savepoint, unaligned))
    return Row(target, channel, RowKind.BARRIER, seq, checkpoint, pa.py_buffer(json.dumps(told).encode()))


def end_row(target: int, channel: ChannelId, seq: int, *, drain: bool) -> Row:
    return Row(target, channel, RowKind.END, seq, int(drain), _EMPTY)


def pad_row(target: int) -> Row:
    return Row(target, ChannelId(-1), RowKind.PAD, 0, 0, _EMPTY)


def read_data(row: Row, schema: pa.Schema) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(row.read(), schema)


def read_barrier(row: Row) -> BarrierNote:
    return BarrierNote(**json.loads(row.read().to_pybytes()))


def to_exchange(rows: Sequence[Row]) -> pa.RecordBatch:
    """A batch of exchange rows; a single payload is not copied."""
    if len(rows) == 1:
        payload = rows[0].read()
        offsets = pa.py_buffer(_offsets(payload.size))
        column = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, payload])
    else:
        column = pa.array([row.read().to_pybytes() for row in rows], pa.binary())
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row.target for row in rows], pa.int32()),
            pa.array([row.channel for row in rows], pa.int32()),
            pa.array([int(row.kind) for row in rows], pa.int32()),
            pa.array([row.seq for row in rows], pa.int64()),
            pa.array([row.mark for row in rows], pa.int64()),
            column,
        ],
        schema=EXCHANGE_SCHEMA,
    )


def _offsets(end: int) -> bytes:
    return (0).to_bytes(4, "little") + end.to_bytes(4, "little")


def from_exchange(batch: pa.RecordBatch) -> list[Row]:
    """The rows of a batch that came off the exchange, pads left out; payloads are not copied."""
    kind = batch.column(_KIND).to_numpy().tolist()
    if kind == _ONE_PAD:  # every other batch, when records come slowly
        return []
    target, channel, _, seq, mark = (batch.column(index).to_numpy().tolist() for index in range(5))
    payload = batch.column(5)
    return [
        Row(target[i], ChannelId(channel[i]), RowKind(kind[i]), seq[i], mark[i], payload[i].as_buffer())
        for i in range(batch.num_rows)
        if kind[i] != RowKind.PAD
    ]
