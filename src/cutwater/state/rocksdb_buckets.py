"""The table of the RocksDB backend for windows of row functions: batches that are too many for memory, as they came."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cutwater.flow.hashing import hash_columns, key_groups
from cutwater.flow.partitioning import by_number
from cutwater.state.cache_share import CacheShare
from cutwater.state.frozen import FrozenTable
from cutwater.state.memory_buckets import MemoryBuckets
from cutwater.state.rocksdb_database import Entry, Family
from cutwater.state.rocksdb_keys import namespace_key, namespace_of

_NUMBER = struct.Struct(">Q")


class RocksDBBuckets:
    """Implements ``BucketTable``. A key is the bucket and a number that counts; a value is an Arrow stream of rows of many
    key groups: a restore takes its own of them."""

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
        self._max_parallelism = max_parallelism
        self._family = family
        self._share = share
        share.join()
        self._recent = MemoryBuckets(*self._of)
        self._recent_bytes = 0
        self.key_columns = self._recent.key_columns
        self.stored_schema = self._recent.stored_schema
        self._stored: set[int] = set()
        self._written = 0

    def buckets(self) -> Iterable[int]:
        return {*self._recent.buckets(), *self._stored}

    def add(self, bucket: int, rows: pa.RecordBatch) -> None:
        self._recent.add(bucket, rows)
        self._recent_bytes += rows.nbytes
        if self._recent_bytes > self._share.bytes:
            self._write_back()

    def read(self, buckets: Iterable[int]) -> Sequence[pa.RecordBatch]:
        return [batch for bucket in buckets for batch in (*self._stored_rows(bucket), *self._recent.read([bucket]))]

    def drop(self, bucket: int) -> None:
        self._recent.drop(bucket)
        if bucket in self._stored:
            self._stored.remove(bucket)
            self._family.drop([namespace_key(bucket)])

    def freeze(self) -> FrozenTable:
        return FrozenRocksDBBuckets(
            self.name, self.stored_schema, self.key_columns, self._max_parallelism, self._family.cut(),
            self._recent.freeze(),
        )  # fmt: skip

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            rows = batch.select(self._schema.names).cast(self._schema)
            for bucket, part in by_number(rows, batch.column(self._bucket).to_numpy()):
                self.add(bucket, part)

    def _stored_rows(self, bucket: int) -> Iterator[pa.RecordBatch]:
        if bucket in self._stored:
            for _, value in self._family.scan(namespace_key(bucket)):
                yield from _batches(value)

    def _write_back(self) -> None:
        for bucket in list(self._recent.buckets()):
            for batch in self._recent.read([bucket]):
                self._family.write([(namespace_key(bucket) + _NUMBER.pack(self._written), _stream_of(batch))])
                self._written += 1
            self._stored.add(bucket)
        self._recent = MemoryBuckets(*self._of)
        self._recent_bytes = 0


def _stream_of(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _batches(value: bytes) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(pa.BufferReader(pa.py_buffer(value))) as reader:
        yield from reader


@dataclass(frozen=True, slots=True)
class FrozenRocksDBBuckets:
    """Implements ``FrozenTable``."""

    name: str
    schema: pa.Schema
    keys: tuple[str, ...]
    max_parallelism: int
    stored: Iterator[Entry]
    recent: FrozenTable

    def batches(self) -> Iterator[pa.RecordBatch]:
        for key, value in self.stored:
            for batch in _batches(value):
                bucket = pa.array(np.full(batch.num_rows, namespace_of(key), np.int64))
                groups = pa.array(key_groups(hash_columns(batch, self.keys), self.max_parallelism))
                yield pa.RecordBatch.from_arrays([*batch.columns, bucket, groups], schema=self.schema)
        yield from self.recent.batches()

    def release(self) -> None:
        self.recent.release()
