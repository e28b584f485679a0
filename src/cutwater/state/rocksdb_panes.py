"""The table of the RocksDB backend for windows: what came lately in tables of the Memory backend, the rest in RocksDB.

Rows of a key are merged when a window is due, not when they are written: until then nothing is read.
"""

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
from cutwater.state.rocksdb_keys import (
    groups_of,
    key_columns,
    namespaces_of,
    number_of,
    numbered,
    prefix_of,
    stored_keys_in_order,
)
from cutwater.state.rocksdb_parts import STEP_ROWS, Part, Parts
from cutwater.state.row_codec import RowCodec
from cutwater.state.tables import Column, Merge

MERGED_ROWS = 65_536
"""So many rows of a window are merged at once: groups of keys are taken together up to it."""


class RocksDBPanes:
    """Implements ``PaneTable``. A key is key group, pane, key and a number; a value is a partial row."""

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
        self._parts = Parts(share, [family], lambda: MemoryPanes(*self._of), self._write, MemoryPanes.drop)
        [self._written] = self._parts.written
        self.key_columns = self._parts.recent.key_columns
        self.stored_schema = self._parts.recent.stored_schema
        self._partial = self._parts.recent.partial_schema
        self._key_schema = pa.schema([self._partial.field(i) for i in range(len(keys))])
        self._codec = RowCodec(pa.schema([column.field for column, _ in columns]))

    def panes(self) -> Iterable[int]:
        return {pane for memory in self._parts.memories() for pane in memory.panes()} | self._written.groups.keys()

    def merge(self, pane: int, partial: pa.RecordBatch) -> None:
        self._parts.recent.merge(pane, partial)
        self._parts.added(partial.nbytes)

    def read(self, panes: Iterable[int]) -> Iterator[pa.RecordBatch]:
        asked = list(panes)
        memories = self._parts.memories()
        if len(memories) == 1 and not any(pane in self._written.groups for pane in asked):
            yield from memories[0].read(asked)
            return
        recent = {pane: self._by_group(memories, pane) for pane in asked}
        groups = {group for pane in asked for group in (*self._written.groups.get(pane, ()), *recent[pane])}
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
        self._parts.drop(pane)

    def freeze(self) -> FrozenTable:
        return FrozenRocksDBPanes(
            self.name, self.stored_schema, self._key_schema, self._codec, self._family.cut(), self._parts.visible,
            tuple(memory.freeze() for memory in self._parts.memories()),
        )  # fmt: skip

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        pane_column = self.key_columns[-1]
        for batch in batches:
            rows = batch.select(self._partial.names).cast(self._partial)
            for pane, part in by_number(rows, batch.column(pane_column).to_numpy()):
                self.merge(pane, part)

    def _by_group(self, memories: Sequence[MemoryPanes], pane: int) -> dict[int, list[pa.RecordBatch]]:
        found: dict[int, list[pa.RecordBatch]] = {}
        for batch in (batch for memory in memories for batch in memory.read([pane])):
            for group, part in by_number(batch, self._groups(batch).astype(np.int64)):
                found.setdefault(group, []).append(part)
        return found

    def _groups(self, partial: pa.RecordBatch) -> "np.typing.NDArray[np.int32]":
        return groups_of(partial.columns[: len(self._key_schema)], partial.num_rows, self._max_parallelism)

    def _stored_rows(self, pane: int, group: int) -> Iterator[pa.RecordBatch]:
        if group not in self._written.groups.get(pane, ()):
            return
        entries = visible_entries(self._family.scan(prefix_of(group, pane)), self._parts.visible)
        while read := list(islice(entries, READ_ROWS)):
            columns, _ = key_columns([key for key, _ in read], self._key_schema, namespace=True)
            values = self._codec.decode([value for _, value in read])
            yield pa.RecordBatch.from_arrays([*columns, *values], schema=self._partial)

    def _write(self, part: Part[MemoryPanes]) -> Iterator[None]:
        frozen = part.memory.freeze()
        try:
            for whole in frozen.batches():
                for start in range(0, whole.num_rows, STEP_ROWS):
                    self._put(whole.slice(start, STEP_ROWS), part)
                    yield
        finally:
            frozen.release()

    def _put(self, batch: pa.RecordBatch, part: Part[MemoryPanes]) -> None:
        """Rows of one pane, each of another key or as they came, in which case they are in order."""
        width = len(self._key_schema)
        pane = batch.column(width)[0].as_py()
        if pane in part.dropped:
            return
        *columns, groups = batch.columns
        in_groups = groups.to_numpy()
        keys, order = stored_keys_in_order(columns[:width], in_groups, columns[width].to_numpy())
        values = self._codec.encode(columns[width + 1 :], batch.num_rows)
        numbers = (order + part.take_numbers(batch.num_rows)).tolist()
        self._family.write(numbered(keys, numbers), [values[i] for i in order.tolist()])
        self._written.note(pane, in_groups)


def visible_entries(entries: Iterator[Entry], visible: int) -> Iterator[Entry]:
    return (entry for entry in entries if number_of(entry[0]) < visible)


@dataclass(frozen=True, slots=True)
class FrozenRocksDBPanes:
    """Implements ``FrozenTable``: what is stored, then what came lately, which merges into it when it is restored."""

    name: str
    schema: pa.Schema
    keys: pa.Schema
    codec: RowCodec
    stored: Iterator[Entry]
    visible: int
    recent: tuple[FrozenTable, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        entries = visible_entries(self.stored, self.visible)
        while read := list(islice(entries, READ_ROWS)):
            keys = [key for key, _ in read]
            columns, groups = key_columns(keys, self.keys, namespace=True)
            values = self.codec.decode([value for _, value in read])
            panes = pa.array(namespaces_of(keys))
            yield pa.RecordBatch.from_arrays([*columns, panes, *values, groups], schema=self.schema)
        for each in self.recent:
            yield from each.batches()

    def release(self) -> None:
        for each in self.recent:
            each.release()
