"""Rows that are added and never changed: a snapshot of them copies nothing."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cutwater.flow.event_time import Times
from cutwater.flow.hashing import hash_columns, key_groups

CHUNK_ROWS = 131_072
"""Chunks are joined up to this many rows: few enough to be found quickly, small enough to be copied at once."""


class AppendedRows:
    """Batches that are never changed, joined into larger ones now and then."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.chunks: list[pa.RecordBatch] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, batch: pa.RecordBatch) -> None:
        chunks = self.chunks
        chunks.append(batch)
        self._count += batch.num_rows
        # As a binary counter: each row is copied a logarithmic number of times.
        while (
            len(chunks) > 1
            and chunks[-2].num_rows <= 2 * chunks[-1].num_rows
            and chunks[-2].num_rows + chunks[-1].num_rows <= CHUNK_ROWS
        ):
            last = chunks.pop()
            chunks[-1] = pa.concat_batches([chunks[-1], last])  # type: ignore[attr-defined]  # the stubs lack it

    def take(self, rows: Times) -> pa.RecordBatch:
        """Those, in this order."""
        if len(rows) == 0:
            return no_rows(self._schema)
        ends = np.cumsum([chunk.num_rows for chunk in self.chunks])
        which = np.searchsorted(ends, rows, side="right")
        order = np.argsort(which, kind="stable")
        parts: list[pa.RecordBatch] = []
        for chunk in np.unique(which).tolist():
            own = rows[which == chunk] - (ends[chunk] - self.chunks[chunk].num_rows)
            parts.append(self.chunks[chunk].take(pa.array(own)))
        if len(parts) == 1:
            return parts[0]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        joined: pa.RecordBatch = pa.concat_batches(parts)  # type: ignore[attr-defined]  # the stubs lack it
        return joined.take(back)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


@dataclass(frozen=True, slots=True)
class FrozenBuckets:
    """Implements ``FrozenTable``: the rows of each bucket as they were."""

    name: str
    schema: pa.Schema
    keys: tuple[str, ...]
    max_parallelism: int
    parts: tuple[tuple[int, tuple[pa.RecordBatch, ...]], ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        for bucket, chunks in self.parts:
            for chunk in chunks:
                where = pa.array(np.full(chunk.num_rows, bucket, np.int64))
                groups = pa.array(key_groups(hash_columns(chunk, self.keys), self.max_parallelism))
                yield pa.RecordBatch.from_arrays([*chunk.columns, where, groups], schema=self.schema)

    def release(self) -> None:
        """Nothing was kept for it."""
