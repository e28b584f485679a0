"""The columnar table of the RocksDB backend: hot keys in a table of the Memory backend, all others in RocksDB.

Operators work on the cache in columns. Keys that it lacks are read with one call for the whole batch; rows that changed are
written when the cache is full, and it begins anew. At a cut nothing is written: the snapshot reads the cache as it was, and
RocksDB as it was behind it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.state.cache_share import CacheShare
from cutwater.state.frozen import FrozenTable
from cutwater.state.memory_aggregates import MemoryAggregateTable, fits_words
from cutwater.state.rocksdb_database import Entry, Family
from cutwater.state.rocksdb_keys import groups_of, key_columns, stored_keys
from cutwater.state.row_codec import RowCodec
from cutwater.state.tables import Column, Merge, Rows, Touched, Update

READ_ROWS = 8192
"""So many rows of RocksDB are decoded at once."""

_INDEX_BYTES = 40
_OBJECT_BYTES = 64
Flags = npt.NDArray[np.bool_]


class RocksDBAggregateTable:
    """Implements ``AggregateTable``."""

    holds_whole_rows = False

    def __init__(
        self,
        uid: str,
        name: str,
        keys: pa.Schema,
        columns: Sequence[Column],
        max_parallelism: int,
        family: Family,
        share: CacheShare,
    ) -> None:
        self.name = name
        self._of = (uid, name, keys, tuple(columns), max_parallelism)
        self._columns = tuple(columns)
        self._max_parallelism = max_parallelism
        self._family = family
        self._share = share
        share.join()
        self._begin_anew()
        self.key_columns = self._cache.key_columns
        self.stored_schema = self._cache.stored_schema
        self._key_schema = pa.schema([self.stored_schema.field(name) for name in self.key_columns])
        self._codec = RowCodec(pa.schema([column.field for column in columns]))
        words = sum(fits_words(column.type) for column in columns)
        self._row_bytes = _INDEX_BYTES + 8 * words + _OBJECT_BYTES * (len(columns) - words)
        self._stored = 0
        """Keys in RocksDB."""

    def __len__(self) -> int:
        return self._stored + len(self._cache) - int(np.count_nonzero(self._is_stored[: len(self._cache)]))

    def locate(self, keys: pa.RecordBatch) -> Touched:
        if self._is_full():
            self._write_back()
        before = len(self._cache)
        touched = self._cache.locate(keys)
        self._make_room()
        is_new = touched.unique >= before
        if is_new.any():
            self._load(keys.take(touched.first[is_new]), touched.unique[is_new])
        return touched

    def update(self, touched: Touched, updates: Sequence[Update]) -> None:
        self._is_changed[touched.unique] = True
        self._cache.update(touched, updates)

    def read(self, rows: Rows) -> list[Array]:
        return self._cache.read(rows)

    def freeze(self) -> FrozenTable:
        count = len(self._cache)
        return FrozenRocksDBAggregates(
            self.name, self.stored_schema, self._key_schema, self._codec, self._family.cut(), self._cache.freeze(),
            self._is_changed[:count].copy(), self._is_stored[:count].copy(),
        )  # fmt: skip

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Each key comes once, so that what no longer fits the cache need not be looked for in RocksDB."""
        for batch in batches:
            if self._is_full():
                self._write(batch)
                self._stored += batch.num_rows
                continue
            before = len(self._cache)
            touched = self._cache.locate(batch.select(list(self.key_columns)))
            self._make_room()
            self._note_bytes(batch.select(list(self.key_columns)))
            self._is_changed[before : len(self._cache)] = True
            values = [batch.column(column.name) for column in self._columns]
            self._cache.update(touched, [Update(c, Merge.LAST, column) for c, column in enumerate(values)])

    def _begin_anew(self) -> None:
        self._cache = MemoryAggregateTable(*self._of)
        self._key_bytes = 0
        self._is_changed: Flags = np.zeros(1024, np.bool_)
        self._is_stored: Flags = np.zeros(1024, np.bool_)

    def _is_full(self) -> bool:
        return len(self._cache) * self._row_bytes + self._key_bytes > self._share.bytes

    def _make_room(self) -> None:
        while len(self._is_changed) < len(self._cache):
            self._is_changed = np.concatenate([self._is_changed, np.zeros_like(self._is_changed)])
            self._is_stored = np.concatenate([self._is_stored, np.zeros_like(self._is_stored)])

    def _note_bytes(self, keys: pa.RecordBatch) -> None:
        self._key_bytes += keys.nbytes

    def _load(self, keys: pa.RecordBatch, rows: Rows) -> None:
        """The rows are new in the cache; those that RocksDB has get their values."""
        self._note_bytes(keys)
        if self._family.is_empty:
            self._is_changed[rows] = True
            return
        groups = groups_of(keys.columns, keys.num_rows, self._max_parallelism)
        values = self._family.get(stored_keys(keys.columns, groups))
        is_known = np.array([value is not None for value in values], np.bool_)
        self._is_changed[rows[~is_known]] = True
        known = rows[is_known]
        if len(known):
            self._is_stored[known] = True
            columns = self._codec.decode([value for value in values if value is not None])
            found = Touched(known, np.arange(len(known), dtype=np.int64), known)
            self._cache.update(found, [Update(c, Merge.LAST, column) for c, column in enumerate(columns)])

    def _write_back(self) -> None:
        self._stored = len(self)
        frozen = self._cache.freeze()
        for batch, changed in _with_flags(frozen, self._is_changed):
            self._write(batch.filter(pa.array(changed)))
        frozen.release()
        self._begin_anew()

    def _write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        keys = _stored_keys_of(batch, len(self.key_columns))
        values = self._codec.encode([batch.column(column.name) for column in self._columns], batch.num_rows)
        self._family.write(zip(keys, values, strict=True))


def _with_flags(frozen: FrozenTable, flags: Flags) -> Iterator[tuple[pa.RecordBatch, Flags]]:
    """Frozen rows come in the order of their numbers."""
    start = 0
    for batch in frozen.batches():
        yield batch, flags[start : start + batch.num_rows]
        start += batch.num_rows


def _stored_keys_of(batch: pa.RecordBatch, width: int) -> list[bytes]:
    *columns, groups = batch.columns
    return stored_keys(columns[:width], groups.to_numpy())


@dataclass(frozen=True, slots=True)
class FrozenRocksDBAggregates:
    """Implements ``FrozenTable``: rows that changed from the cache, the others from RocksDB."""

    name: str
    schema: pa.Schema
    keys: pa.Schema
    codec: RowCodec
    stored: Iterator[Entry]
    cached: FrozenTable
    is_changed: Flags
    is_stored: Flags

    def batches(self) -> Iterator[pa.RecordBatch]:
        superseded: set[bytes] = set()
        start = 0
        for batch, changed in _with_flags(self.cached, self.is_changed):
            newer = changed & self.is_stored[start : start + batch.num_rows]
            start += batch.num_rows
            if newer.any():
                superseded.update(_stored_keys_of(batch.filter(pa.array(newer)), len(self.keys)))
            if changed.any():
                yield batch if changed.all() else batch.filter(pa.array(changed))
        while read := list(islice(self.stored, READ_ROWS)):
            entries = [entry for entry in read if entry[0] not in superseded]
            if entries:
                columns, groups = key_columns([key for key, _ in entries], self.keys)
                values = self.codec.decode([value for _, value in entries])
                yield pa.RecordBatch.from_arrays([*columns, *values, groups], schema=self.schema)

    def release(self) -> None:
        self.cached.release()
