"""Rows that an unaligned cut overtook: stored beside the state as they came off the exchange, replayed by a restore."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cutwater.flow.envelope import REPLAYED, Row, RowKind, read_data
from cutwater.flow.hashing import hash_columns, key_groups
from cutwater.flow.ids import ChannelId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.flow.watermarks import MIN_WATERMARK

TABLE = "in-flight"
"""No state of a function has this name: those are identifiers."""
_BATCH_BYTES = 1 << 20
_FIELDS: dict[str, pa.DataType] = {
    "edge": pa.int32(),
    "sender": pa.int32(),
    "watermark": pa.int64(),
    "payload": pa.binary(),
}
_SCHEMA = pa.schema(_FIELDS)


@dataclass(frozen=True, slots=True)
class Lane:
    """Where a channel comes from: which of the subtask's edges, and which subtask at its other end."""

    edge: int
    sender: int


@dataclass(frozen=True, slots=True)
class RecordedTable:
    """Implements ``FrozenTable``: rows as they are on the exchange, in the order in which they came."""

    rows: Sequence[Row]
    lanes: Mapping[ChannelId, Lane]

    @property
    def name(self) -> str:
        return TABLE

    @property
    def schema(self) -> pa.Schema:
        return _SCHEMA

    def counts(self, edges: int) -> tuple[int, ...]:
        """How many rows came on each of so many edges."""
        found = Counter(self.lanes[row.channel].edge for row in self.rows)
        return tuple(found[edge] for edge in range(edges))

    def batches(self) -> Iterator[pa.RecordBatch]:
        gathered: list[Row] = []
        size = 0
        for row in self.rows:
            gathered.append(row)
            size += row.size
            if size >= _BATCH_BYTES:
                yield self._batch(gathered)
                gathered, size = [], 0
        if gathered:
            yield self._batch(gathered)

    def _batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        lanes = [self.lanes[row.channel] for row in rows]
        return pa.RecordBatch.from_arrays(
            [
                pa.array([lane.edge for lane in lanes], pa.int32()),
                pa.array([lane.sender for lane in lanes], pa.int32()),
                pa.array([row.mark for row in rows], pa.int64()),
                pa.array([row.read().to_pybytes() for row in rows], pa.binary()),
            ],
            schema=_SCHEMA,
        )

    def release(self) -> None:
        """Nothing is kept for it."""


@dataclass(frozen=True, slots=True)
class Replay:
    """How the rows of one stored edge come to this subtask.

    ``channels``: by sender, where rows go on in their old channel. Else they come in ``channel`` and tell no time: it is not
    that of any sender. ``key``: only records of the own key groups are for this subtask.
    """

    edge: int
    schema: pa.Schema
    channel: ChannelId
    channels: Mapping[int, ChannelId]
    key: tuple[str, ...] = ()

    def rows(self, batches: Iterable[pa.RecordBatch], own: KeyGroupRange, max_parallelism: int) -> Iterator[Row]:
        for batch in batches:
            columns = (batch.column(index).to_pylist() for index in range(3))
            payloads = batch.column(3)
            for at, (edge, sender, watermark) in enumerate(zip(*columns, strict=True)):
                if edge != self.edge:
                    continue
                known = sender in self.channels
                channel, mark = (self.channels[sender], watermark) if known else (self.channel, MIN_WATERMARK)
                row = Row(-1, channel, RowKind.DATA, REPLAYED, mark, payloads[at].as_buffer())
                yield from (row,) if not self.key else self._own(row, own, max_parallelism)

    def _own(self, row: Row, own: KeyGroupRange, max_parallelism: int) -> Iterator[Row]:
        batch = read_data(row, self.schema)
        groups = key_groups(hash_columns(batch, self.key), max_parallelism)
        mine = (groups >= own.first) & (groups <= own.last)
        if mine.all():
            yield row
        elif mine.any():
            yield replace(row, payload=batch.filter(pa.array(np.asarray(mine))).serialize())
