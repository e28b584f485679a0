"""The table of the RocksDB backend for joins: what came lately in a table of the Memory backend, older rows one by one under
their keys, so that only those with an asked key are read."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np
import pyarrow as pa

from cutwater.flow.event_time import Times
from cutwater.flow.partitioning import by_number
from cutwater.state.appended_rows import no_rows
from cutwater.state.cache_share import CacheShare
from cutwater.state.frozen import FrozenTable
from cutwater.state.memory_join import MemoryJoin, MemoryJoinSide
from cutwater.state.rocksdb_aggregates import READ_ROWS
from cutwater.state.rocksdb_database import Entry, Family
from cutwater.state.rocksdb_keys import groups_of, namespaces_of, prefix_of, stored_keys
from cutwater.state.row_codec import RowCodec
from cutwater.state.tables import JoinSide

_NUMBER = struct.Struct(">Q")


class RocksDBJoin:
    """Implements ``JoinTable``."""

    def __init__(
        self, name: str, sides: Sequence[JoinSide], bucket: str, max_parallelism: int, share: CacheShare,
        families: Sequence[Family],
    ) -> None:  # fmt: skip
        self._of = (tuple(sides), bucket, max_parallelism)
        self._share = share
        share.join()
        self.recent = MemoryJoin(*self._of)
        self._recent_bytes = 0
        self.sides = tuple(
            RocksDBJoinSide(self, side, f"{name}.{word}", family)
            for side, (word, family) in enumerate(zip(("left", "right"), families, strict=True))
        )

    def buckets(self) -> Iterable[int]:
        return {*self.recent.buckets(), *self.sides[0].stored, *self.sides[1].stored}

    def add(self, side: int, bucket: int, rows: pa.RecordBatch) -> None:
        self.recent.add(side, bucket, rows)
        self._recent_bytes += rows.nbytes
        if self._recent_bytes > self._share.bytes:
            for each in self.sides:
                each.write_back()
            self.recent = MemoryJoin(*self._of)
            self._recent_bytes = 0

    def matches(self, side: int, bucket: int, rows: pa.RecordBatch) -> tuple[Times, pa.RecordBatch]:
        other = self.sides[1 - side]
        recent = self.recent.matches(side, bucket, rows)
        if bucket not in other.stored:
            return recent
        keys = rows.select(list(self.recent.sides[side].keys))
        stored = other.matches(bucket, keys)
        asked = np.concatenate([stored[0], recent[0]])
        pairs: pa.RecordBatch = pa.concat_batches([stored[1], recent[1]])  # type: ignore[attr-defined]  # the stubs lack it
        # Stable: of one asked row those that are stored, which came first, stay before the recent ones.
        order = np.argsort(asked, kind="stable")
        return asked[order], pairs.take(order)

    def drop(self, bucket: int) -> None:
        self.recent.drop(bucket)
        for side in self.sides:
            side.drop(bucket)


class RocksDBJoinSide:
    """One side as a table of the store. A key is key group, bucket, key and a number that counts; a value is a row."""

    holds_whole_rows = True

    def __init__(self, join: RocksDBJoin, side: int, name: str, family: Family) -> None:
        self.name = name
        self._join = join
        self._side = side
        self._family = family
        recent = MemoryJoinSide(join.recent, side, name)
        self.key_columns = recent.key_columns
        self.stored_schema = recent.stored_schema
        self._schema = join.recent.sides[side].schema
        self._codec = RowCodec(self._schema)
        self._max_parallelism = join.recent.max_parallelism
        self.stored: dict[int, set[int]] = {}
        """The key groups of each bucket that are in RocksDB."""
        self._numbers = count()

    def matches(self, bucket: int, keys: pa.RecordBatch) -> tuple[Times, pa.RecordBatch]:
        """Rows of this side with the given keys of the other: in the order of these, then of arrival."""
        groups = groups_of(keys.columns, keys.num_rows, self._max_parallelism)
        prefixes = stored_keys(keys.columns, groups, np.full(keys.num_rows, bucket, np.int64))
        held = self.stored[bucket]
        values: list[bytes] = []
        places: dict[bytes, range] = {}
        for prefix, group in zip(prefixes, groups.tolist(), strict=True):
            if group in held and prefix not in places:
                first = len(values)
                values.extend(value for _, value in self._family.scan(prefix))
                places[prefix] = range(first, len(values))
        found = [places.get(prefix, range(0)) for prefix in prefixes]
        asked = np.repeat(np.arange(keys.num_rows), [len(place) for place in found])
        if not values:
            return asked, no_rows(self._schema)
        rows = pa.RecordBatch.from_arrays(self._codec.decode(values), schema=self._schema)
        return asked, rows.take(pa.array([row for place in found for row in place], pa.int64()))

    def drop(self, bucket: int) -> None:
        groups = self.stored.pop(bucket, None)
        if groups:
            self._family.drop(prefix_of(group, bucket) for group in groups)

    def write_back(self) -> None:
        for batch in self._recent().freeze().batches():
            *columns, buckets, groups = batch.columns
            numbers, in_groups = buckets.to_numpy(), groups.to_numpy()
            keys = stored_keys(batch.select(list(self.key_columns)).columns, in_groups, numbers)
            values = self._codec.encode(columns, batch.num_rows)
            self._family.write(
                (key + _NUMBER.pack(number), value)
                for key, value, number in zip(keys, values, self._numbers, strict=False)
            )
            for bucket in np.unique(numbers).tolist():
                self.stored.setdefault(bucket, set()).update(np.unique(in_groups[numbers == bucket]).tolist())

    def freeze(self) -> FrozenTable:
        return FrozenRocksDBJoinSide(
            self.name, self.stored_schema, self._codec, self._family.cut(), self._recent().freeze()
        )

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        bucket_column = self._join.recent.bucket
        for batch in batches:
            rows = batch.select(self._schema.names).cast(self._schema)
            for bucket, part in by_number(rows, batch.column(bucket_column).to_numpy()):
                self._join.add(self._side, bucket, part)

    def _recent(self) -> MemoryJoinSide:
        return MemoryJoinSide(self._join.recent, self._side, self.name)


@dataclass(frozen=True, slots=True)
class FrozenRocksDBJoinSide:
    """Implements ``FrozenTable``: older rows first, as they are to be found in the order of arrival."""

    name: str
    schema: pa.Schema
    codec: RowCodec
    stored: Iterator[Entry]
    recent: FrozenTable

    def batches(self) -> Iterator[pa.RecordBatch]:
        while read := list(islice(self.stored, READ_ROWS)):
            keys = [key for key, _ in read]
            groups = np.frombuffer(b"".join([key[:2] for key in keys]), ">u2").astype(np.int32)
            columns = self.codec.decode([value for _, value in read])
            buckets = pa.array(namespaces_of(keys))
            yield pa.RecordBatch.from_arrays([*columns, buckets, pa.array(groups)], schema=self.schema)
        yield from self.recent.batches()

    def release(self) -> None:
        self.recent.release()
