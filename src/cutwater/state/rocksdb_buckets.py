"""The table of the RocksDB backend for windows of row functions: batches that are too many for memory, as they came."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from cutwater.flow.batches import pieces
from cutwater.flow.partitioning import by_number
from cutwater.state.cache_share import CacheShare
from cutwater.state.memory_buckets import MemoryBuckets
from cutwater.state.rocksdb_cut import Gate
from cutwater.state.rocksdb_family import Entry, Family
from cutwater.state.rocksdb_frozen import TableInParts
from cutwater.state.rocksdb_keys import groups_of, numbered, prefix_of
from cutwater.state.rocksdb_layout import Content, Layout, batch_of, message_of
from cutwater.state.rocksdb_parts import Part, Parts, put_in_steps

STEP_ROWS = 32_768
"""Whole batches are written, or divided: more of them at once than of single rows."""
STEP_PARTS = 2048
"""Or so many batches made of them: where each has few rows."""
SHARE_ROWS, SHARE_BYTES = 65_536, 16 << 20
"""Key groups are read together until they have so many rows, or so many bytes were read for them."""

RowsByGroup = dict[tuple[int, int], list[pa.RecordBatch]]
"""By key group and bucket."""


class RocksDBBuckets(TableInParts):
    """Implements ``BucketTable`` and ``ReadsInShares``. A key is key group, bucket and a number that counts; a value is an Arrow
    message."""

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
        self._schema = schema
        self._bucket = bucket
        self._max_parallelism = max_parallelism
        self._family = family
        self.parts = Parts(share, gate, [family], lambda: MemoryBuckets(*self._of), self._write, MemoryBuckets.drop)
        self.key_columns = self.parts.recent.key_columns
        self.stored_schema = self.parts.recent.stored_schema
        self.layout = Layout(Content.BATCHES, self.stored_schema, self.key_columns)

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

    def drop(self, bucket: int) -> None:
        self.parts.drop(bucket)

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            rows = batch.select(self._schema.names).cast(self._schema)
            for bucket, part in by_number(rows, batch.column(self._bucket).to_numpy()):
                self.add(bucket, part)

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

        def rows_of(group: int) -> Iterator[tuple[pa.RecordBatch, int]]:
            for bucket in buckets:
                # What is stored came first.
                if group in stored.get(bucket, ()):
                    for _, message in stored_by_then(self._family.scan(prefix_of(group, bucket))):
                        yield batch_of(message, self._schema), len(message)
                for batch in by_group.pop((group, bucket), ()):
                    yield batch, 0

        left = deque(sorted({group for group, _ in by_group}.union(*stored.values())))
        while left:
            yield _some_groups(left, rows_of)

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
        def put(bucket: int, batch: pa.RecordBatch) -> None:
            self._put(bucket, batch, part)

        return put_in_steps(part, part.memory.freeze().batches(), len(self._schema), STEP_ROWS, put)

    def _put(self, bucket: int, batch: pa.RecordBatch, part: Part[MemoryBuckets]) -> None:
        groups = batch.column(len(self._schema) + 1).to_numpy()
        rows = batch.select(self._schema.names)
        by_group = list(by_number(rows, groups.astype(np.int64)))
        first = part.take_numbers(len(by_group))
        keys = numbered([prefix_of(group, bucket) for group, _ in by_group], range(first, first + len(by_group)))
        self._family.write(keys, [message_of(each) for _, each in by_group])
        part.note(0, bucket, groups)


def _some_groups(
    left: deque[int], rows_of: Callable[[int], Iterator[tuple[pa.RecordBatch, int]]]
) -> Iterator[pa.RecordBatch]:
    """Of the groups that are left. ``rows_of`` tells how many bytes were read for each batch, too."""
    rows, size = 0, 0
    while left and rows < SHARE_ROWS and size < SHARE_BYTES:
        for batch, read in rows_of(left.popleft()):
            rows += batch.num_rows
            size += read
            yield batch
