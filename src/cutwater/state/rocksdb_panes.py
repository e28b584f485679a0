"""The table of the RocksDB backend for windows: what came lately in tables of the Memory backend, the rest in RocksDB.

Rows of a key are merged when a window is due, not when they are written: until then nothing is read.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from cutwater.flow.batches import pieces
from cutwater.flow.partitioning import by_number
from cutwater.state.cache_share import CacheShare
from cutwater.state.frozen import FrozenTable
from cutwater.state.key_set import KeySet
from cutwater.state.memory_panes import MemoryPanes
from cutwater.state.rocksdb_bulk import BulkRows, are_more_than
from cutwater.state.rocksdb_cut import Gate
from cutwater.state.rocksdb_family import Entry, Family, in_lists
from cutwater.state.rocksdb_frozen import TableInParts
from cutwater.state.rocksdb_keys import (
    groups_of,
    key_columns,
    prefix_of,
    stored_keys_in_order,
)
from cutwater.state.rocksdb_layout import READ_ROWS, Content, Layout
from cutwater.state.rocksdb_parts import STEP_ROWS, Part, Parts
from cutwater.state.tables import Column, Merge, Positions, Size

MERGED_ROWS = 65_536
"""So many rows of a window are merged at once: groups of keys are taken together up to it."""

KEY_COSTS = 16
"""So many rows could be read in the time that it takes to find those of one key."""

KEYS_A_STEP = 1024

BATCH_COSTS = 64
"""So many rows more could be read and merged in the time that it takes to find them."""


class RocksDBPanes(TableInParts):
    """Implements ``PaneTable``, ``ReadsKeys`` and ``ReadsSmallPanes``.

    A key is key group, pane, key and a number; a value is a partial row."""

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
        gate: Gate,
    ) -> None:
        self.name = name
        self._of = (uid, name, keys, pane, tuple(columns), max_parallelism)
        self._max_parallelism = max_parallelism
        self._family = family
        self.parts = Parts(share, gate, [family], lambda: MemoryPanes(*self._of), self._write, MemoryPanes.drop)
        self.key_columns = self.parts.recent.key_columns
        self.stored_schema = self.parts.recent.stored_schema
        self._partial = self._added = self.parts.recent.partial_schema
        self._namespace = pane
        self._key_schema = pa.schema([self._partial.field(i) for i in range(len(keys))])
        self.layout = Layout(Content.BY_PANE_AND_KEY, self.stored_schema, tuple(keys.names))
        self._codec = self.layout.codec()

    def panes(self) -> Iterable[int]:
        return {pane for memory in self.parts.memories() for pane in memory.panes()} | self.parts.written[0].keys()

    def merge(self, pane: int, partial: pa.RecordBatch) -> None:
        self.parts.recent.merge(pane, partial)
        self.parts.added(partial)

    def read(self, panes: Iterable[int]) -> Iterator[pa.RecordBatch]:
        asked = list(panes)
        memories = self.parts.memories()
        if self._is_all_in_one_memory(asked):
            yield from memories[0].read(asked)
            return
        recent: dict[tuple[int, int], list[pa.RecordBatch]] = {}
        for pane in asked:
            for batch in (batch for memory in memories for batch in memory.read([pane])):
                for group, part in by_number(batch, self._groups(batch).astype(np.int64)):
                    recent.setdefault((group, pane), []).append(part)
                yield batch.slice(0, 0)
        groups = {group for pane in asked for group in self.parts.written[0].get(pane, ())}
        merging, rows, step = MemoryPanes(*self._of), 0, 0
        for group in sorted(groups.union(group for group, _ in recent)):
            for pane in asked:
                # What is stored came first.
                for batch in chain(self._stored_rows(pane, group), recent.pop((group, pane), ())):
                    merging.merge(0, batch)
                    rows += batch.num_rows
                    step += batch.num_rows + BATCH_COSTS
                    if step >= READ_ROWS:
                        yield batch.slice(0, 0)
                        step = 0
            if rows >= MERGED_ROWS:
                yield from merging.read([0])
                merging, rows = MemoryPanes(*self._of), 0
        yield from merging.read([0])

    def read_keys(self, panes: Iterable[int], keys: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        asked = list(panes)
        if self._is_all_in_one_memory(asked):
            yield from self.parts.recent.read_keys(asked, keys)
            return
        if keys.num_rows * len(asked) * KEY_COSTS > self._family.about:
            yield from self.read(asked)
            return
        nothing = pa.RecordBatch.from_pylist([], self._partial)
        for some in pieces(keys, KEYS_A_STEP):
            wanted, merging = KeySet.of(some), MemoryPanes(*self._of)
            for pane in asked:
                for batch in self._stored_rows_of(pane, some):
                    merging.merge(0, batch)
                # What is in memory came later. Others may be read with them, of which all that is stored is not.
                for batch in (batch for memory in self.parts.memories() for batch in memory.read_keys([pane], some)):
                    merging.merge(0, wanted.rows_of(batch))
                yield nothing
            yield from merging.read([0])

    def size_in_memory(self, panes: Iterable[int]) -> Size | None:
        asked = list(panes)
        return self.parts.recent.size_in_memory(asked) if self._is_all_in_one_memory(asked) else None

    def read_each(self, sets: Sequence[Iterable[int]]) -> tuple[pa.RecordBatch, Positions]:
        recent: MemoryPanes = self.parts.recent
        return recent.read_each(sets)

    def drop(self, pane: int) -> None:
        self.parts.drop(pane)

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        """As rows of RocksDB also where they will not stay in memory. All or none: what is in memory is newer."""
        many, batches = are_more_than(batches, self.parts.share.bytes // 2)
        if many:
            self._ingest(batches)
        else:
            super().restore(batches)

    def _add_restored(self, namespace: int, rows: pa.RecordBatch) -> None:
        self.merge(namespace, rows)

    def _bulk_rows(self, rows: pa.RecordBatch, part: Part[MemoryPanes]) -> BulkRows:
        width = len(self._key_schema)
        *columns, groups = rows.columns
        in_groups, panes = groups.to_numpy(), columns[width].to_numpy()
        part.note_each(0, panes, in_groups)
        numbers = part.take_numbers(rows.num_rows)
        return BulkRows(columns[:width], in_groups, panes, numbers, columns[width + 1 :])

    def _is_all_in_one_memory(self, panes: Sequence[int]) -> bool:
        return len(self.parts.memories()) == 1 and not any(pane in self.parts.written[0] for pane in panes)

    def _groups(self, partial: pa.RecordBatch) -> "np.typing.NDArray[np.int32]":
        return groups_of(partial.columns[: len(self._key_schema)], partial.num_rows, self._max_parallelism)

    def _stored_rows(self, pane: int, group: int) -> Iterator[pa.RecordBatch]:
        if group not in self.parts.written[0].get(pane, ()):
            return
        yield from self._rows_of(self._family.scan(prefix_of(group, pane)))

    def _stored_rows_of(self, pane: int, keys: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        held = self.parts.written[0].get(pane)
        if not held:
            return
        groups = self._groups(keys)
        there = np.isin(groups, list(held))
        panes = np.full(int(there.sum()), pane, np.int64)
        prefixes, _ = stored_keys_in_order(keys.filter(pa.array(there)).columns, groups[there], panes)
        yield from self._rows_of(chain.from_iterable(map(self._family.scan, prefixes)))

    def _rows_of(self, entries: Iterator[Entry]) -> Iterator[pa.RecordBatch]:
        for keys, encoded in in_lists(self.parts.stored(entries), READ_ROWS):
            columns, _ = key_columns(keys, self._key_schema, namespace=True)
            values = self._codec.decode(encoded)
            yield pa.RecordBatch.from_arrays([*columns, *values], schema=self._partial)

    def _write(self, part: Part[MemoryPanes]) -> Iterator[int]:
        return self._steps(part, part.memory.freeze())

    def _steps(self, part: Part[MemoryPanes], frozen: FrozenTable) -> Iterator[int]:
        try:
            for whole in frozen.batches():
                for start in range(0, whole.num_rows, STEP_ROWS):
                    some = whole.slice(start, STEP_ROWS)
                    self._put(some, part)
                    yield some.num_rows
        finally:
            frozen.release()

    def _put(self, batch: pa.RecordBatch, part: Part[MemoryPanes]) -> None:
        """Rows of one pane, each of another key or as they came, in which case they are in order."""
        width = len(self._key_schema)
        pane = batch.column(width)[0].as_py()
        if not part.needs(pane):
            return
        *columns, groups = batch.columns
        in_groups = groups.to_numpy()
        numbers = part.take_numbers(batch.num_rows)
        keys, order = stored_keys_in_order(columns[:width], in_groups, columns[width].to_numpy(), numbers)
        values = self._codec.encode(columns[width + 1 :], batch.num_rows)
        self._family.write(keys, [values[i] for i in order.tolist()])
        part.note(0, pane, in_groups)
