"""Rows that are added and never changed: a snapshot of them copies nothing."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cutwater.flow.batches import detached, joined, taken
from cutwater.flow.event_time import Times
from cutwater.flow.partitioning import side_by_side
from cutwater.state.bytes_of_rows import bytes_of_rows

CHUNK_ROWS, CHUNK_BYTES = 131_072, 128 << 20
"""Chunks are joined up to so many rows and bytes: few enough to be found quickly, small enough to be copied at once."""


_serials = itertools.count()


class HeldRows(NamedTuple):
    """What an ``AppendedRows`` held at some moment."""

    serial: int
    chunks: tuple[pa.RecordBatch, ...]

    @property
    def rows(self) -> int:
        return sum(chunk.num_rows for chunk in self.chunks)


class AppendedRows:
    """Batches that are never changed, joined into larger ones now and then. No two have the same ``serial``."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.serial = next(_serials)
        self.chunks: list[pa.RecordBatch] = []
        self._count = 0
        self._widest = 0
        self._measured = 0
        """So many of the rows, from the first one on, are not wider."""

    def __len__(self) -> int:
        return self._count

    @property
    def buffer_bytes(self) -> int:
        """Soon known, and about what the rows have."""
        return sum(chunk.get_total_buffer_size() for chunk in self.chunks)

    def held(self) -> HeldRows:
        """On any thread; right if nothing is appended meanwhile."""
        return HeldRows(self.serial, tuple(self.chunks))

    def append(self, batch: pa.RecordBatch) -> None:
        chunks = self.chunks
        chunks.append(batch)
        self._count += batch.num_rows
        # As a binary counter: each row is copied a logarithmic number of times.
        while (
            len(chunks) > 1
            and chunks[-2].num_rows <= 2 * chunks[-1].num_rows
            and chunks[-2].num_rows + chunks[-1].num_rows <= CHUNK_ROWS
            and chunks[-2].nbytes + chunks[-1].nbytes <= CHUNK_BYTES
        ):
            last = chunks.pop()
            chunks[-1] = pa.concat_batches([chunks[-1], last])  # type: ignore[attr-defined]  # the stubs lack it
        if chunks[-1] is batch:
            chunks[-1] = detached(batch)

    def joined(self, columns: Sequence[str]) -> pa.RecordBatch:
        """These columns of all rows, of which there are some."""
        return joined([chunk.select(list(columns)) for chunk in self.chunks])

    def widest(self) -> int:
        """How many bytes a row has at most. Each is looked at once."""
        known, self._measured = self._measured, self._count
        for chunk in self.chunks:
            if known < chunk.num_rows:
                rows = np.arange(known, chunk.num_rows)
                self._widest = max(self._widest, int(bytes_of_rows(chunk, rows).max()))
            known = max(known - chunk.num_rows, 0)
        return self._widest

    def bytes_of(self, rows: Times) -> Times:
        """How many each of those has, of which there are some."""
        sizes = np.empty(len(rows), np.int64)
        ends = np.cumsum([chunk.num_rows for chunk in self.chunks])
        order, starts = side_by_side(np.searchsorted(ends, rows, side="right").astype(np.int32), len(ends))
        for at in np.flatnonzero(np.diff(starts)).tolist():
            own = order[starts[at] : starts[at + 1]]
            chunk = self.chunks[at]
            sizes[own] = bytes_of_rows(chunk, rows[own] - (ends[at] - chunk.num_rows))
        return sizes

    def take(self, rows: Times) -> pa.RecordBatch:
        """Those, in this order."""
        return taken(self.chunks, rows) if len(rows) else no_rows(self._schema)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
