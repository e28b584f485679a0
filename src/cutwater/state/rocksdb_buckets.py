"""The table of the RocksDB backend for windows of row functions: batches that are too many for memory, as they came."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cutwater.flow.partitioning import by_number
from cutwater.state.cache_share import CacheShare
from cutwater.state.encoded_keys import plain
from cutwater.state.frozen import FrozenTable
from cutwater.state.memory_buckets import MemoryBuckets
from cutwater.state.rocksdb_database import Entry, Family
from cutwater.state.rocksdb_keys import fitted, groups_in, namespaces_of, numbered, prefix_of
from cutwater.state.rocksdb_panes import visible_entries
from cutwater.state.rocksdb_parts import Part, Parts

STEP_ROWS = 32_768
"""Whole batches are written: more of them at once than of single rows."""


class RocksDBBuckets:
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
    ) -> None:
        self.name = name
        self._of = (name, schema, keys, bucket, max_parallelism)
        self._schema = schema
        self._bucket = bucket
        self._family = family
        self._parts = Parts(share, [family], lambda: MemoryBuckets(*self._of), self._write, MemoryBuckets.drop)
        [self._written] = self._parts.written
        self.key_columns = self._parts.recent.key_columns
        self.stored_schema = self._parts.recent.stored_schema

    def buckets(self) -> Iterable[int]:
        found = {bucket for memory in self._parts.memories() for bucket in memory.buckets()}
        return found | self._written.groups.keys()

    def add(self, bucket: int, rows: pa.RecordBatch) -> None:
        self._parts.recent.add(bucket, rows)
        self._parts.added(rows.nbytes)

    def read(self, buckets: Iterable[int]) -> Sequence[pa.RecordBatch]:
        memories = self._parts.memories()
        return [
            batch
            for bucket in buckets
            for batch in (*self._stored_rows(bucket), *(each for memory in memories for each in memory.read([bucket])))
        ]

    def drop(self, bucket: int) -> None:
        self._parts.drop(bucket)

    def freeze(self) -> FrozenTable:
        return FrozenRocksDBBuckets(
            self.name, self.stored_schema, self._schema, self._family.cut(), self._parts.visible,
            tuple(memory.freeze() for memory in self._parts.memories()),
        )  # fmt: skip

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            rows = batch.select(self._schema.names).cast(self._schema)
            for bucket, part in by_number(rows, batch.column(self._bucket).to_numpy()):
                self.add(bucket, part)

    def _stored_rows(self, bucket: int) -> Iterator[pa.RecordBatch]:
        for group in sorted(self._written.groups.get(bucket, ())):
            for _, value in visible_entries(self._family.scan(prefix_of(group, bucket)), self._parts.visible):
                yield _batch_of(value, self._schema)

    def _write(self, part: Part[MemoryBuckets]) -> Iterator[None]:
        for whole in part.memory.freeze().batches():
            bucket = whole.column(len(self._schema))[0].as_py()
            for start in range(0, whole.num_rows, STEP_ROWS):
                if bucket not in part.dropped:
                    self._put(bucket, whole.slice(start, STEP_ROWS), part)
                yield

    def _put(self, bucket: int, batch: pa.RecordBatch, part: Part[MemoryBuckets]) -> None:
        groups = batch.column(len(self._schema) + 1).to_numpy()
        rows = batch.select(self._schema.names)
        by_group = list(by_number(rows, groups.astype(np.int64)))
        first = part.take_numbers(len(by_group))
        keys = numbered([prefix_of(group, bucket) for group, _ in by_group], range(first, first + len(by_group)))
        self._family.write(keys, [_message_of(each) for _, each in by_group])
        self._written.note(bucket, groups)


def _plain(schema: pa.Schema) -> pa.Schema:
    """Messages have no room for dictionaries."""
    return pa.schema([field.with_type(plain(field.type)) for field in schema])


def _message_of(batch: pa.RecordBatch) -> bytes:
    schema = _plain(batch.schema)
    columns = [fitted(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema).serialize().to_pybytes()


def _batch_of(message: bytes, schema: pa.Schema) -> pa.RecordBatch:
    batch = pa.ipc.read_record_batch(pa.py_buffer(message), _plain(schema))
    columns = [fitted(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass(frozen=True, slots=True)
class FrozenRocksDBBuckets:
    """Implements ``FrozenTable``."""

    name: str
    schema: pa.Schema
    rows: pa.Schema
    stored: Iterator[Entry]
    visible: int
    recent: tuple[FrozenTable, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        for key, value in visible_entries(self.stored, self.visible):
            batch = _batch_of(value, self.rows)
            bucket = pa.array(np.repeat(namespaces_of([key]), batch.num_rows))
            group = pa.array(np.repeat(groups_in([key]), batch.num_rows))
            yield pa.RecordBatch.from_arrays([*batch.columns, bucket, group], schema=self.schema)
        for each in self.recent:
            yield from each.batches()

    def release(self) -> None:
        for each in self.recent:
            each.release()
