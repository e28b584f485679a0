"""The table of the RocksDB backend for windows: what came lately in a table of the Memory backend, merged into RocksDB when
there is too much of it. Nothing is read from RocksDB before a window is due."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa

from cutwater.flow.partitioning import by_number
from cutwater.state.cache_share import CacheShare
from cutwater.state.frozen import FrozenTable
from cutwater.state.memory_panes import MemoryPanes
from cutwater.state.rocksdb_aggregates import READ_ROWS
from cutwater.state.rocksdb_database import Entry, Family
from cutwater.state.rocksdb_keys import groups_of, key_columns, namespaces_of, prefix_of, stored_keys
from cutwater.state.row_codec import RowCodec
from cutwater.state.tables import Column, Merge

MERGED_ROWS = 65_536
"""So many rows of a window are merged at once: groups of keys are taken together up to it."""


class RocksDBPanes:
    """Implements ``PaneTable``."""

    holds_whole_rows = False

    def __init__(
        self,
        uid: str,
        name: str,
        keys: pa.Schema,
        pane: str,
        columns: Sequence[tuple[Column, Merge]],
        max_parallelism: int,
        family: Family,
        share: CacheShare,
    ) -> None:
        self.name = name
        self._of = (uid, name, keys, pane, tuple(columns), max_parallelism)
        self._max_parallelism = max_parallelism
        self._family = family
        self._share = share
        share.join()
        self._recent = MemoryPanes(*self._of)
        self._recent_bytes = 0
        self.key_columns = self._recent.key_columns
        self.stored_schema = self._recent.stored_schema
        self._partial = self._recent.partial_schema
        self._key_schema = pa.schema([self._partial.field(i) for i in range(len(keys))])
        self._codec = RowCodec(pa.schema([column.field for column, _ in columns]))
        self._stored: dict[int, set[int]] = {}
        """The key groups of each pane that are in RocksDB."""

    def panes(self) -> Iterable[int]:
        return {*self._recent.panes(), *self._stored}

    def merge(self, pane: int, partial: pa.RecordBatch) -> None:
        self._recent.merge(pane, partial)
        self._recent_bytes += partial.nbytes
        if self._recent_bytes > self._share.bytes:
            self._write_back()

    def read(self, panes: Iterable[int]) -> Iterator[pa.RecordBatch]:
        asked = list(panes)
        if not any(pane in self._stored for pane in asked):
            yield from self._recent.read(asked)
            return
        recent = {pane: self._recent_by_group(pane) for pane in asked}
        groups = {group for pane in asked for group in (*self._stored.get(pane, ()), *recent[pane])}
        merging, rows = MemoryPanes(*self._of), 0
        for group in sorted(groups):
            for pane in asked:
                # What is stored came first.
                for batch in (*self._stored_rows(pane, group), *recent[pane].get(group, ())):
                    merging.merge(0, batch)
                    rows += batch.num_rows
            if rows >= MERGED_ROWS:
                yield from merging.read([0])
                merging, rows = MemoryPanes(*self._of), 0
        yield from merging.read([0])

    def drop(self, pane: int) -> None:
        self._recent.drop(pane)
        groups = self._stored.pop(pane, None)
        if groups:
            self._family.drop(prefix_of(group, pane) for group in groups)

    def freeze(self) -> FrozenTable:
        return FrozenRocksDBPanes(
            self.name, self.stored_schema, self._key_schema, self._codec, self._family.cut(), self._recent.freeze()
        )

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        pane_column = self.key_columns[-1]
        for batch in batches:
            rows = batch.select(self._partial.names).cast(self._partial)
            for pane, part in by_number(rows, batch.column(pane_column).to_numpy()):
                self.merge(pane, part)

    def _recent_by_group(self, pane: int) -> dict[int, list[pa.RecordBatch]]:
        found: dict[int, list[pa.RecordBatch]] = {}
        for batch in self._recent.read([pane]):
            for group, part in by_number(batch, self._groups(batch).astype(np.int64)):
                found.setdefault(group, []).append(part)
        return found

    def _groups(self, partial: pa.RecordBatch) -> "np.typing.NDArray[np.int32]":
        return groups_of(partial.columns[: len(self._key_schema)], partial.num_rows, self._max_parallelism)

    def _stored_rows(self, pane: int, group: int) -> Iterator[pa.RecordBatch]:
        if group not in self._stored.get(pane, ()):
            return
        entries = self._family.scan(prefix_of(group, pane))
        while read := list(islice(entries, READ_ROWS)):
            yield self._rows([key for key, _ in read], [value for _, value in read])

    def _rows(self, keys: Sequence[bytes], values: Sequence[bytes]) -> pa.RecordBatch:
        columns, _ = key_columns(keys, self._key_schema, namespace=True)
        return pa.RecordBatch.from_arrays([*columns, *self._codec.decode(values)], schema=self._partial)

    def _write_back(self) -> None:
        for pane in list(self._recent.panes()):
            for batch in self._recent.read([pane]):
                self._write(pane, batch)
        self._recent = MemoryPanes(*self._of)
        self._recent_bytes = 0

    def _write(self, pane: int, batch: pa.RecordBatch) -> None:
        """``batch`` has each key once."""
        groups = self._groups(batch)
        keys = self._keys_of(pane, batch, groups)
        if pane in self._stored:
            found = [(key, value) for key, value in zip(keys, self._family.get(keys), strict=True) if value is not None]
            if found:
                merging = MemoryPanes(*self._of)
                merging.merge(0, self._rows([key for key, _ in found], [value for _, value in found]))
                merging.merge(0, batch)
                for merged in merging.read([0]):
                    self._put(pane, merged)
                return
        self._put(pane, batch)

    def _put(self, pane: int, batch: pa.RecordBatch) -> None:
        groups = self._groups(batch)
        values = self._codec.encode(batch.columns[len(self._key_schema) :], batch.num_rows)
        self._family.write(zip(self._keys_of(pane, batch, groups), values, strict=True))
        self._stored.setdefault(pane, set()).update(np.unique(groups).tolist())

    def _keys_of(self, pane: int, batch: pa.RecordBatch, groups: "np.typing.NDArray[np.int32]") -> list[bytes]:
        panes = np.full(batch.num_rows, pane, np.int64)
        return stored_keys(batch.columns[: len(self._key_schema)], groups, panes)


@dataclass(frozen=True, slots=True)
class FrozenRocksDBPanes:
    """Implements ``FrozenTable``: what is stored, then what came lately, which merges into it when it is restored."""

    name: str
    schema: pa.Schema
    keys: pa.Schema
    codec: RowCodec
    stored: Iterator[Entry]
    recent: FrozenTable

    def batches(self) -> Iterator[pa.RecordBatch]:
        while read := list(islice(self.stored, READ_ROWS)):
            keys = [key for key, _ in read]
            columns, groups = key_columns(keys, self.keys, namespace=True)
            values = self.codec.decode([value for _, value in read])
            panes = pa.array(namespaces_of(keys))
            yield pa.RecordBatch.from_arrays([*columns, panes, *values, groups], schema=self.schema)
        yield from self.recent.batches()

    def release(self) -> None:
        self.recent.release()
