"""The table of the RocksDB backend for windows of row functions: batches that are too many for memory, as they came."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from cutwater.flow.partitioning import by_number
from cutwater.state.cache_share import CacheShare
from cutwater.state.memory_buckets import MemoryBuckets
from cutwater.state.rocksdb_cut import Gate
from cutwater.state.rocksdb_family import Family
from cutwater.state.rocksdb_frozen import TableInParts
from cutwater.state.rocksdb_keys import numbered, prefix_of
from cutwater.state.rocksdb_layout import Content, Layout, batch_of, message_of
from cutwater.state.rocksdb_parts import Part, Parts, put_in_steps

STEP_ROWS = 32_768
"""Whole batches are written: more of them at once than of single rows."""


class RocksDBBuckets(TableInParts):
    """Implements ``BucketTable``. A key is key group, bucket and a number that counts; a value is an Arrow message."""

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
        self.parts.added(rows.nbytes)

    def read(self, buckets: Iterable[int]) -> Iterator[pa.RecordBatch]:
        memories = self.parts.memories()
        # Nothing is read yet, but it is settled what will be: what a part has in memory now is not read again when it is stored.
        rows = [
            each
            for bucket in buckets
            for each in (self._stored_rows(bucket), *(memory.read([bucket]) for memory in memories))
        ]
        return chain.from_iterable(rows)

    def drop(self, bucket: int) -> None:
        self.parts.drop(bucket)

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            rows = batch.select(self._schema.names).cast(self._schema)
            for bucket, part in by_number(rows, batch.column(self._bucket).to_numpy()):
                self.add(bucket, part)

    def _stored_rows(self, bucket: int) -> Iterator[pa.RecordBatch]:
        groups = sorted(self.parts.written[0].get(bucket, ()))
        entries = (entry for group in groups for entry in self._family.scan(prefix_of(group, bucket)))
        return (batch_of(value, self._schema) for _, value in self.parts.stored(entries))

    def _write(self, part: Part[MemoryBuckets]) -> Iterator[None]:
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
