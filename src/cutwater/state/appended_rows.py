"""Rows that are added and never changed: a snapshot of them copies nothing."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cutwater.flow.batches import detached, joined, taken
from cutwater.flow.event_time import Times
from cutwater.flow.hashing import hash_columns, key_groups
from cutwater.state.changes import Header, with_header
from cutwater.state.frozen import FrozenTable

CHUNK_ROWS = 131_072
"""Chunks are joined up to this many rows: few enough to be found quickly, small enough to be copied at once."""


_serials = itertools.count()


class AppendedRows:
    """Batches that are never changed, joined into larger ones now and then. No two have the same ``serial``."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.serial = next(_serials)
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
        if chunks[-1] is batch:
            chunks[-1] = detached(batch)

    def joined(self, columns: Sequence[str]) -> pa.RecordBatch:
        """These columns of all rows, of which there are some and few."""
        return joined([chunk.select(list(columns)) for chunk in self.chunks])

    def take(self, rows: Times) -> pa.RecordBatch:
        """Those, in this order."""
        return taken(self.chunks, rows) if len(rows) else no_rows(self._schema)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


class Extent(NamedTuple):
    """How far the rows of a bucket went."""

    serial: int
    rows: int


BucketsMark = Mapping[int, Extent]
"""The buckets that there were."""


class BucketChanges:
    """The part of a ``TrackedTable`` that is the same for all tables of appended rows, by bucket."""

    name: str
    key_columns: tuple[str, ...]
    stored_schema: pa.Schema
    bucket_column: str
    max_parallelism: int

    def __init__(self) -> None:
        self._restored: dict[int, Extent] = {}

    def appended(self) -> Iterable[tuple[int, AppendedRows]]:
        """The rows of each bucket."""
        raise NotImplementedError

    def restored_mark(self) -> BucketsMark:
        return self._restored

    def mark(self) -> BucketsMark:
        return {bucket: Extent(rows.serial, len(rows)) for bucket, rows in self.appended()}

    def changes(self, since: BucketsMark, frozen: FrozenTable) -> "FrozenBuckets":
        dropped = {bucket for bucket, extent in since.items() if extent.rows}
        parts = []
        for bucket, rows in self.appended():
            known = since.get(bucket)
            goes_on = known is not None and known.serial == rows.serial
            had = known.rows if known is not None and goes_on else 0
            if goes_on:
                dropped.discard(bucket)
            if len(rows) > had:
                parts.append((bucket, tuple(rows.chunks), had))
        header = Header(bucket=self.bucket_column, dropped=tuple(sorted(dropped)))
        schema = with_header(self.stored_schema, header)
        return FrozenBuckets(self.name, schema, self.key_columns, self.max_parallelism, tuple(parts))

    def forget(self, before: BucketsMark) -> None:
        self._restored = {}

    def freeze(self) -> "FrozenBuckets":
        parts = tuple((bucket, tuple(rows.chunks), 0) for bucket, rows in self.appended())
        return FrozenBuckets(self.name, self.stored_schema, self.key_columns, self.max_parallelism, parts)

    def _note_restored(self, bucket: int, rows: AppendedRows) -> None:
        self._restored[bucket] = Extent(rows.serial, len(rows))


@dataclass(frozen=True, slots=True)
class FrozenBuckets:
    """Implements ``FrozenTable``: of each bucket the rows as they were, but for so many at the beginning."""

    name: str
    schema: pa.Schema
    keys: tuple[str, ...]
    max_parallelism: int
    parts: tuple[tuple[int, tuple[pa.RecordBatch, ...], int], ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        for bucket, chunks, had in self.parts:
            for chunk in _behind(chunks, had):
                where = pa.array(np.full(chunk.num_rows, bucket, np.int64))
                groups = pa.array(key_groups(hash_columns(chunk, self.keys), self.max_parallelism))
                yield pa.RecordBatch.from_arrays([*chunk.columns, where, groups], schema=self.schema)

    def release(self) -> None:
        """Nothing was kept for it."""


def _behind(chunks: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Without the first ``rows`` rows."""
    for chunk in chunks:
        if rows == 0:
            yield chunk
        elif rows < chunk.num_rows:
            # A copy: a slice is stored as wide as it is in memory.
            yield chunk.take(np.arange(rows, chunk.num_rows))
            rows = 0
        else:
            rows -= chunk.num_rows
