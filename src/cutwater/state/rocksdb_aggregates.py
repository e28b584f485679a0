"""The columnar table of the RocksDB backend: hot keys in tables of the Memory backend, all others in RocksDB.

Operators work on the cache in columns. Keys that it lacks are read with one call for the whole batch. When it is full, the loop
goes on in a new space: with each batch a part of the old one is cleared, rows that were touched lately move over, the others
are written if they changed. At a cut nothing is written: the snapshot reads the cache as it was, and RocksDB behind it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.state.cache_share import CacheShare
from cutwater.state.frozen import FrozenTable
from cutwater.state.index_kernels import CHUNK_ROWS
from cutwater.state.memory_aggregates import MemoryAggregateTable, fits_words
from cutwater.state.rocksdb_bulk import ingest_rows
from cutwater.state.rocksdb_cut import KEYS, Gate, StoreCut
from cutwater.state.rocksdb_family import Family
from cutwater.state.rocksdb_keys import groups_of, stored_keys_in_order
from cutwater.state.rocksdb_layout import Content, Layout
from cutwater.state.rocksdb_space import FrozenRocksDBAggregates, FrozenSpace, Leaving, Space
from cutwater.state.tables import Column, Rows, Touched, Update

Json = Any

_INDEX_BYTES = 48
_REFERENCE_BYTES = 16
"""In a row, to a text or an object beside it."""


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
        gate: Gate,
    ) -> None:
        self.name = name
        self._of = (uid, name, keys, tuple(columns), max_parallelism)
        self._columns = tuple(columns)
        self._max_parallelism = max_parallelism
        self._family = family
        self._share = share
        share.join()
        self._gate = gate
        self._cut: StoreCut | None = None
        """The last one, until it is known what became of it."""
        self._young = Space(MemoryAggregateTable(*self._of))
        """Where the loop reads and writes."""
        self._leaving: Leaving | None = None
        self._tick = 0
        self.key_columns = self._young.table.key_columns
        self.stored_schema = self._young.table.stored_schema
        self.layout = Layout(Content.BY_KEY, self.stored_schema, self.key_columns)
        self._codec = self.layout.codec()
        words = sum(fits_words(column.type) for column in columns)
        self._row_bytes = _INDEX_BYTES + 8 * words + _REFERENCE_BYTES * (len(columns) - words)
        self._stored = 0
        """Keys in RocksDB."""

    def __len__(self) -> int:
        return self._stored + sum(space.unstored for space in self._spaces())

    def locate(self, keys: pa.RecordBatch) -> Touched:
        self._make_room(keys.num_rows)
        self._tick += 1
        before = len(self._young)
        touched = self._young.locate(keys, self._tick)
        if len(self._young) > before:
            is_new = touched.unique >= before
            self._load(keys.take(touched.first[is_new]), touched.unique[is_new])
        return touched

    def update(self, touched: Touched, updates: Sequence[Update]) -> None:
        self._young.is_changed[touched.unique] = True
        self._young.table.update(touched, updates)

    def read(self, rows: Rows) -> list[Array]:
        return self._young.table.read(rows)

    def freeze(self) -> FrozenRocksDBAggregates:
        spaces = tuple(space.freeze() for space in self._spaces())
        return FrozenRocksDBAggregates(self.name, self.layout, self._family.cut(), spaces)

    def freeze_into(self, cut: StoreCut) -> FrozenTable:
        self._hear_of_cut()
        frozen = self.freeze()
        self._stored += sum(space.hand_over() for space in self._spaces())
        self._cut = cut
        cut.before_link(lambda: self._ingest(frozen.cached))
        return frozen

    def details(self) -> Json:
        return {KEYS: len(self)}

    def resume(self, parts: Sequence[Json]) -> None:
        self._stored = sum(details[KEYS] for details in parts)

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Each key comes once, so that what no longer fits the cache need not be looked for in RocksDB."""
        rest = iter(batches)
        while self._bytes(self._young) <= self._share.bytes / 2 and (batch := next(rest, None)) is not None:
            rows = self._add(batch)
            self._young.is_changed[rows] = True
        self._stored += ingest_rows(self._family, self.layout, rest, self._share.bytes // 2)

    def _spaces(self) -> list[Space]:
        return [self._young] if self._leaving is None else [self._young, self._leaving.space]

    def _bytes(self, space: Space) -> int:
        return len(space) * self._row_bytes + space.key_bytes + space.table.value_bytes

    def _add(self, batch: pa.RecordBatch) -> Rows:
        """Rows whose keys are not in the young space."""
        keys = batch.select(list(self.key_columns))
        rows = self._young.locate(keys, self._tick).rows
        self._young.key_bytes += keys.nbytes
        self._young.put(rows, [batch.column(column.name) for column in self._columns])
        return rows

    def _load(self, keys: pa.RecordBatch, rows: Rows) -> None:
        """``rows`` are new in the young space: what is known of their keys elsewhere comes to them."""
        young = self._young
        young.key_bytes += keys.nbytes
        young.is_changed[rows] = True
        if self._leaving is not None:
            old = self._leaving.space
            found = old.find(keys)
            is_known = found >= 0
            if is_known.any():
                known = found[is_known]
                to = rows[is_known]
                young.put(to, old.table.read(known))
                young.is_changed[to] = old.is_changed[known] | old.is_pending[known]
                young.is_stored[to] = old.is_stored[known]
                old.is_gone[known] = True
                keys, rows = keys.filter(pa.array(~is_known)), rows[~is_known]
        if len(rows) and not self._family.is_empty:
            self._read_stored(keys, rows)

    def _read_stored(self, keys: pa.RecordBatch, rows: Rows) -> None:
        groups = groups_of(keys.columns, keys.num_rows, self._max_parallelism)
        asked, order = stored_keys_in_order(keys.columns, groups)
        values = self._family.get(asked)
        rows = rows[order]
        found = [value for value in values if value is not None]
        if len(found) < len(values):
            rows = rows[np.array([value is not None for value in values], np.bool_)]
        if found:
            self._young.is_changed[rows] = False
            self._young.is_stored[rows] = True
            self._young.put(rows, self._codec.decode(found))

    def _make_room(self, records: int) -> None:
        """In proportion to what comes, so that the old space is cleared before the new one is full. Both together are a third
        more than the share at most: memory of the old one is free only when all of it is cleared."""
        share = self._share.bytes
        if not self._gate.lets_write(sum(map(self._bytes, self._spaces())), share):
            return
        # Only now: a cut that was given up opens the gate too, and what it had is not in RocksDB.
        self._hear_of_cut()
        if self._leaving is None and self._bytes(self._young) > share * 2 // 3:
            self._leaving = Leaving(self._young)
            self._young = Space(MemoryAggregateTable(*self._of))
        steps = 1 + 2 * records // CHUNK_ROWS
        while self._leaving is not None and (
            steps > 0 or self._bytes(self._young) + self._bytes(self._leaving.space) > share * 4 // 3
        ):
            self._clear_step(self._leaving)
            steps -= 1

    def _clear_step(self, leaving: Leaving) -> None:
        old = leaving.space
        rows = leaving.next_rows()
        batch = leaving.frozen.part(rows.start, rows.stop)
        part = slice(rows.start, rows.stop)
        is_here = ~old.is_gone[part]
        is_hot = is_here & (old.touched_at[part] > leaving.cold_until)
        is_written = is_here & ~is_hot & old.is_changed[part]
        if is_hot.any():
            hot = batch.filter(pa.array(is_hot))
            added = self._add(hot)
            self._young.is_changed[added] = old.is_changed[part][is_hot]
            self._young.is_stored[added] = old.is_stored[part][is_hot]
            self._young.touched_at[added] = old.touched_at[part][is_hot]
        if is_written.any():
            self._write(batch.filter(pa.array(is_written)))
            self._stored += int(np.count_nonzero(is_written & ~old.is_stored[part]))
        old.is_gone[part] = True
        if leaving.is_over:
            leaving.frozen.release()
            self._leaving = None

    def _hear_of_cut(self) -> None:
        if self._cut is not None and self._cut.is_over:
            for space in self._spaces():
                space.take_back(is_written=self._cut.is_linked)
            self._cut = None

    def _ingest(self, spaces: Sequence[FrozenSpace]) -> None:
        """By whoever links the cut."""
        changed = (batch for space in spaces for batch, _ in space.changed())
        ingest_rows(self._family, self.layout, changed, self._share.bytes // 2)

    def _write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        keys, order = _stored_keys_in_order(batch, len(self.key_columns))
        columns = [batch.column(column.name) for column in self._columns]
        values = self._codec.encode(columns, batch.num_rows)
        self._family.write(keys, [values[i] for i in order.tolist()])


def _stored_keys_in_order(batch: pa.RecordBatch, width: int) -> "tuple[list[bytes], np.typing.NDArray[np.int64]]":
    *columns, groups = batch.columns
    return stored_keys_in_order(columns[:width], groups.to_numpy())
