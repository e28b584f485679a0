"""Tables of appended rows by bucket, as a snapshot sees them: all rows, or what changed since an earlier one."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from cutwater.flow.hashing import hash_columns, key_groups
from cutwater.state.appended_rows import AppendedRows, HeldRows
from cutwater.state.bucket_history import BucketsMark, Moment
from cutwater.state.changes import Header, with_header
from cutwater.state.frozen import FrozenTable


class Extent(NamedTuple):
    """How far the rows of a bucket went."""

    serial: int
    rows: int


class BucketChanges:
    """The part of a ``TrackedTable`` that is the same for all tables of appended rows, by bucket."""

    name: str
    key_columns: tuple[str, ...]
    stored_schema: pa.Schema
    bucket_column: str
    max_parallelism: int

    def __init__(self) -> None:
        self._restored: dict[int, Extent] = {}
        self._mark: BucketsMark[Extent] = BucketsMark()

    def moment(self) -> Moment[HeldRows]:
        """All buckets as they are now."""
        raise NotImplementedError

    def restored_mark(self) -> BucketsMark[Extent]:
        return BucketsMark(self._restored)

    def mark(self) -> BucketsMark[Extent]:
        self._mark.is_wanted = True
        return self._mark

    def changes(self, since: BucketsMark[Extent], frozen: FrozenTable) -> "ChangedBuckets | None":
        assert isinstance(frozen, FrozenBuckets)
        return None if since.extents is None else ChangedBuckets(frozen, since.extents, self.bucket_column)

    def forget(self, before: BucketsMark[Extent]) -> None:
        self._restored = {}

    def freeze(self) -> "FrozenBuckets":
        self._mark = BucketsMark()
        return FrozenBuckets(
            self.name, self.stored_schema, self.key_columns, self.max_parallelism, self.moment(), self._mark
        )

    def _note_restored(self, bucket: int, rows: AppendedRows) -> None:
        self._restored[bucket] = Extent(rows.serial, len(rows))


class FrozenBuckets:
    """Implements ``FrozenTable``. However many buckets there are, the freeze went through none of them."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: tuple[str, ...],
        max_parallelism: int,
        moment: Moment[HeldRows],
        mark: BucketsMark[Extent],
    ) -> None:
        self.name = name
        self.schema = schema
        self._keys = keys
        self._max_parallelism = max_parallelism
        self._moment: Moment[HeldRows] | None = moment
        self._mark = mark

    def batches(self) -> Iterator[pa.RecordBatch]:
        for bucket, held in self.buckets():
            yield from self.stored(bucket, held.chunks, self.schema)

    def buckets(self) -> Iterator[tuple[int, HeldRows]]:
        assert self._moment is not None, "it was released"
        return self._mark.known_by(self._moment.buckets(), lambda held: Extent(held.serial, held.rows))

    def stored(self, bucket: int, chunks: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for chunk in chunks:
            where = pa.array(np.full(chunk.num_rows, bucket, np.int64))
            groups = pa.array(key_groups(hash_columns(chunk, self._keys), self._max_parallelism))
            yield pa.RecordBatch.from_arrays([*chunk.columns, where, groups], schema=schema)

    def release(self) -> None:
        self._moment = None


class ChangedBuckets:
    """Implements ``TableRows``. What changed is found out when it is first asked for, on the snapshot thread."""

    def __init__(self, frozen: FrozenBuckets, since: Mapping[int, Extent], bucket_column: str) -> None:
        self.name = frozen.name
        self._frozen = frozen
        self._since = since
        self._bucket_column = bucket_column

    @cached_property
    def schema(self) -> pa.Schema:
        header = Header(bucket=self._bucket_column, dropped=self._found.dropped)
        return with_header(self._frozen.schema, header)

    def batches(self) -> Iterator[pa.RecordBatch]:
        for bucket, held, had in self._found.added:
            yield from self._frozen.stored(bucket, _behind(held.chunks, had), self.schema)

    @cached_property
    def _found(self) -> "_Found":
        dropped = {bucket for bucket, extent in self._since.items() if extent.rows}
        added = []
        for bucket, held in self._frozen.buckets():
            known = self._since.get(bucket)
            goes_on = known is not None and known.serial == held.serial
            had = known.rows if known is not None and goes_on else 0
            if goes_on:
                dropped.discard(bucket)
            if held.rows > had:
                added.append((bucket, held, had))
        return _Found(tuple(sorted(dropped)), added)


class _Found(NamedTuple):
    """Buckets that are gone, and those that have more rows: how many each had."""

    dropped: tuple[int, ...]
    added: list[tuple[int, HeldRows, int]]


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
