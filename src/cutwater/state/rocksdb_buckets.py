"""The table of the RocksDB backend for windows of row functions: rows that are too many for memory, as they came."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from cutwater.flow.batches import joined, pieces
from cutwater.flow.partitioning import by_number
from cutwater.state.cache_share import CacheShare
from cutwater.state.frozen import FrozenTable
from cutwater.state.memory_buckets import MemoryBuckets
from cutwater.state.rocksdb_bucket_entries import STEP_BATCHES, entries_of
from cutwater.state.rocksdb_bulk import BulkRows
from cutwater.state.rocksdb_cut import Gate
from cutwater.state.rocksdb_family import READ_BYTES, Entry, Family
from cutwater.state.rocksdb_frozen import TableInParts
from cutwater.state.rocksdb_keys import groups_of, prefix_of
from cutwater.state.rocksdb_layout import (
    READ_ROWS,
    Content,
    Layout,
    batch_of,
    is_of_row,
    numbers_of_rows,
    together,
)
from cutwater.state.rocksdb_parts import STEP_ROWS as STEP_SINGLE_ROWS
from cutwater.state.rocksdb_parts import Part, Parts
from cutwater.state.tables import Size

STEP_ROWS = 32_768
"""Whole batches are written, or divided: more of them at once than of single rows."""
STEP_PARTS = 2048
"""Or so many batches made of them: where each has few rows."""
SHARE_ROWS, SHARE_BYTES = 65_536, 16 << 20
"""Key groups are read together until they have so many rows, or so many bytes."""
FINDING_COSTS = 64
"""So many rows more could be read in the time that it takes to find those of a key group and bucket."""

RowsByGroup = dict[tuple[int, int], list[pa.RecordBatch]]
"""By key group and bucket."""
Find = Callable[[int, int], Iterator[bytes | pa.RecordBatch]]
"""What there is of them, in the order in which it came: stored rows, and batches."""


class RocksDBBuckets(TableInParts):
    """Implements ``BucketTable``, ``KnowsSizes`` and ``ReadsInShares``.

    A key is key group, bucket and a number that counts; a value is a row, or an Arrow message."""

    holds_whole_rows = True

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[str],
        bucket: str,
        max_parallelism: int,
        family: Family,
        share: CacheShare,
        gate: Gate,
    ) -> None:
        self.name = name
        self._of = (name, schema, keys, bucket, max_parallelism)
        self._schema = self._added = schema
        self._namespace = bucket
        self._max_parallelism = max_parallelism
        self._family = family
        self.parts = Parts(share, gate, [family], lambda: MemoryBuckets(*self._of), self._write, MemoryBuckets.drop)
        self.key_columns = self.parts.recent.key_columns
        self.stored_schema = self.parts.recent.stored_schema
        self.layout = Layout(Content.ROWS_OR_BATCHES, self.stored_schema, self.key_columns)
        self._codec = self.layout.codec()

    def buckets(self) -> Iterable[int]:
        found = {bucket for memory in self.parts.memories() for bucket in memory.buckets()}
        return found | self.parts.written[0].keys()

    def add(self, bucket: int, rows: pa.RecordBatch) -> None:
        self.parts.recent.add(bucket, rows)
        self.parts.added(rows)

    def read(self, buckets: Iterable[int]) -> Iterator[pa.RecordBatch]:
        return chain.from_iterable(self.shares(buckets))

    def shares(self, buckets: Iterable[int]) -> Iterator[Iterator[pa.RecordBatch]]:
        asked = list(buckets)
        # Nothing is read yet, but it is settled what will be: what a part has in memory now is not read again when it is stored.
        stored = {bucket: groups.copy() for bucket in asked if (groups := self.parts.written[0].get(bucket))}
        memories = self.parts.memories()
        recent = [(bucket, batch) for bucket in asked for memory in memories for batch in memory.read([bucket])]
        if not stored:
            return iter([(batch for _, batch in recent)])
        filled = stored.keys() | {bucket for bucket, _ in recent}
        return self._shares([each for each in asked if each in filled], stored, self.parts.stored_by_now(), recent)

    def size_in_memory(self, buckets: Iterable[int]) -> Size | None:
        asked = list(buckets)
        if any(bucket in self.parts.written[0] for bucket in asked):
            return None
        rows, sizes = zip(*(memory.size_in_memory(asked) for memory in self.parts.memories()), strict=True)
        return Size(sum(rows), sum(sizes))

    def drop(self, bucket: int) -> None:
        self.parts.drop(bucket)

    def _add_restored(self, namespace: int, rows: pa.RecordBatch) -> None:
        self.add(namespace, rows)

    def _bulk_rows(self, rows: pa.RecordBatch, part: Part[MemoryBuckets]) -> BulkRows:
        *_, of_buckets, groups = rows.columns
        in_groups, buckets = groups.to_numpy(), of_buckets.to_numpy()
        part.note_each(0, buckets, in_groups)
        numbers = numbers_of_rows(part.take_numbers(2 * rows.num_rows))
        return BulkRows([], in_groups, buckets, numbers, rows.select(self._schema.names).columns)

    def _shares(
        self,
        buckets: Sequence[int],
        stored: Mapping[int, set[int]],
        stored_by_then: Callable[[Iterator[Entry]], Iterator[Entry]],
        recent: Iterable[tuple[int, pa.RecordBatch]],
    ) -> Iterator[Iterator[pa.RecordBatch]]:
        """Key groups, taken together up to a bound."""
        by_group: RowsByGroup = {}
        for _ in self._divide(recent, by_group):
            yield iter(())

        def found(group: int, bucket: int) -> Iterator[bytes | pa.RecordBatch]:
            # What is stored came first.
            if group in stored.get(bucket, ()):
                for key, value in stored_by_then(self._family.scan(prefix_of(group, bucket))):
                    yield value if is_of_row(key) else batch_of(value, self._schema)
            yield from by_group.pop((group, bucket), ())

        left = deque(sorted({group for group, _ in by_group}.union(*stored.values())))
        while left:
            yield self._some_groups(left, buckets, found)

    def _some_groups(self, left: deque[int], buckets: Sequence[int], found: Find) -> Iterator[pa.RecordBatch]:
        """Of the groups that are left. Single rows wait for what follows, as they are decoded together."""
        waiting: list[bytes | pa.RecordBatch] = []
        rows, size, enough = 0, 0, (READ_ROWS, READ_BYTES)
        while left and rows < SHARE_ROWS and size < SHARE_BYTES:
            group = left.popleft()
            for bucket in buckets:
                rows += FINDING_COSTS
                for each in found(group, bucket):
                    if isinstance(each, bytes):
                        rows, size = rows + 1, size + len(each)
                    else:
                        rows, size = rows + each.num_rows, size + each.nbytes
                        if not waiting:
                            yield each
                            continue
                    waiting.append(each)
                    if rows >= enough[0] or size >= enough[1]:
                        yield together(waiting, self._codec, self._schema)
                        waiting, enough = [], (rows + READ_ROWS, size + READ_BYTES)
        if waiting:
            yield together(waiting, self._codec, self._schema)

    def _divide(self, batches: Iterable[tuple[int, pa.RecordBatch]], into: RowsByGroup) -> Iterator[None]:
        """The rows of each bucket; a bounded step before each yield."""
        rows, parts = 0, 0
        for bucket, batch in batches:
            for piece in pieces(batch, STEP_ROWS):
                keys = piece.select(list(self.key_columns)).columns
                groups = groups_of(keys, piece.num_rows, self._max_parallelism)
                for group, part in by_number(piece, groups.astype(np.int64)):
                    into.setdefault((group, bucket), []).append(part)
                    parts += 1
                rows += piece.num_rows
                if rows >= STEP_ROWS or parts >= STEP_PARTS:
                    yield
                    rows, parts = 0, 0

    def _write(self, part: Part[MemoryBuckets]) -> Iterator[int]:
        return self._steps(part, part.memory.freeze())

    def _steps(self, part: Part[MemoryBuckets], frozen: FrozenTable) -> Iterator[int]:
        """Rows of small buckets are written together."""
        waiting: list[pa.RecordBatch] = []
        rows, seen = 0, 0
        for piece in (piece for whole in frozen.batches() for piece in pieces(whole, STEP_ROWS)):
            rows, seen = rows + piece.num_rows, seen + 1
            if part.needs(piece.column(self._namespace)[0].as_py()):
                waiting.append(piece)
            if rows >= STEP_SINGLE_ROWS or seen >= STEP_BATCHES:
                yield from self._put(waiting, rows, part)
                waiting, rows, seen = [], 0, 0
        yield from self._put(waiting, rows, part)

    def _put(self, batches: Sequence[pa.RecordBatch], rows: int, part: Part[MemoryBuckets]) -> Iterator[int]:
        """``batches`` are what is left of so many rows, as some buckets were dropped."""
        if batches:
            for count, (keys, values) in entries_of(joined(batches), self._codec, part):
                self._family.write(keys, values)
                yield count
                rows -= count
        if rows:
            yield rows
