"""The table of the RocksDB backend for joins: what came lately in tables of the Memory backend, older rows one by one under
their keys, so that only those with an asked key are read."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import inf

import numpy as np
import pyarrow as pa

from cutwater.flow.event_time import Times
from cutwater.state.appended_rows import no_rows
from cutwater.state.bytes_of_rows import bytes_of_rows
from cutwater.state.cache_share import CacheShare
from cutwater.state.memory_join import MemoryJoin, MemoryJoinSide
from cutwater.state.rocksdb_bulk import BulkRows
from cutwater.state.rocksdb_cut import Gate
from cutwater.state.rocksdb_family import Family
from cutwater.state.rocksdb_frozen import TableInParts
from cutwater.state.rocksdb_keys import groups_of, stored_keys, stored_keys_in_order
from cutwater.state.rocksdb_layout import Content, Layout
from cutwater.state.rocksdb_parts import STEP_ROWS, Part, Parts, put_in_steps
from cutwater.state.tables import JoinSide, TooManyPairs


class RocksDBJoin:
    """Implements ``JoinTable``."""

    def __init__(
        self, name: str, sides: Sequence[JoinSide], bucket: str, max_parallelism: int, share: CacheShare,
        gate: Gate, families: Sequence[Family],
    ) -> None:  # fmt: skip
        of = (tuple(sides), bucket, max_parallelism)
        self.parts = Parts(
            share, gate, families, lambda: MemoryJoin(*of), self._write, MemoryJoin.drop,
            lambda memory: memory.bytes_beside_rows,
        )  # fmt: skip
        self.sides = tuple(
            RocksDBJoinSide(self, side, f"{name}.{word}", family)
            for side, (word, family) in enumerate(zip(("left", "right"), families, strict=True))
        )

    def buckets(self) -> Iterable[int]:
        found = {bucket for memory in self.parts.memories() for bucket in memory.buckets()}
        return found.union(*self.parts.written)

    def add(self, side: int, bucket: int, rows: pa.RecordBatch) -> None:
        self.parts.recent.add(side, bucket, rows)
        self.parts.added(rows)

    def matches(
        self, side: int, bucket: int, rows: pa.RecordBatch, most: int | None = None
    ) -> tuple[Times, pa.RecordBatch]:
        other = self.sides[1 - side]
        memories = self.parts.memories()
        found = [memory.matches(side, bucket, rows, most) for memory in memories[:-1] if bucket in memory.buckets()]
        found.append(memories[-1].matches(side, bucket, rows, most))
        if bucket in other.written:
            keys = rows.select(list(self.parts.recent.sides[side].keys))
            found.insert(0, other.matches(bucket, keys, bytes_of_rows(rows, np.arange(rows.num_rows)), most))
        if len(found) == 1:
            return found[0]
        asked = np.concatenate([which for which, _ in found])
        pairs: pa.RecordBatch = pa.concat_batches([pairs for _, pairs in found])  # type: ignore[attr-defined]  # the stubs lack it
        # Stable: of one asked row those that came first, which are found first, stay before the later ones.
        order = np.argsort(asked, kind="stable")
        return asked[order], pairs.take(order)

    def drop(self, bucket: int) -> None:
        self.parts.drop(bucket)

    def _write(self, part: Part[MemoryJoin]) -> Iterator[int]:
        left, right = (side.write(part) for side in self.sides)
        return chain(left, right)


class RocksDBJoinSide(TableInParts):
    """One side as a table of the store. A key is key group, bucket, key and a number that counts; a value is a row."""

    holds_whole_rows = True

    def __init__(self, join: RocksDBJoin, side: int, name: str, family: Family) -> None:
        self.name = name
        self._join = join
        self._at = self._side = side
        self._family = family
        recent = join.parts.recent
        as_table = MemoryJoinSide(recent, side, name)
        self.key_columns = as_table.key_columns
        self.stored_schema = as_table.stored_schema
        self._schema = self._added = recent.sides[side].schema
        self._namespace = recent.bucket
        self.layout = Layout(Content.WHOLE_ROWS, self.stored_schema, self.key_columns)
        self._codec = self.layout.codec()
        self._max_parallelism = recent.max_parallelism
        self.parts = join.parts
        self.written = join.parts.written[side]

    def matches(
        self, bucket: int, keys: pa.RecordBatch, own_bytes: Times, most: int | None
    ) -> tuple[Times, pa.RecordBatch]:
        """Rows of this side with the given keys of the other: in the order of these, then of arrival. ``own_bytes``: of what stands
        beside those of each."""
        groups = groups_of(keys.columns, keys.num_rows, self._max_parallelism)
        prefixes = stored_keys(keys.columns, groups, np.full(keys.num_rows, bucket, np.int64))
        held = self.written[bucket]
        values: list[bytes] = []
        places: dict[bytes, range] = {}
        times, beside = Counter(prefixes), Counter[bytes]()
        for prefix, size in zip(prefixes, own_bytes.tolist(), strict=True):
            beside[prefix] += size
        left: float = inf if most is None else most
        for at, (prefix, group) in enumerate(zip(prefixes, groups.tolist(), strict=True)):
            if group in held and prefix not in places:
                first = len(values)
                for _, value in self.parts.stored(self._family.scan(prefix)):
                    values.append(value)
                    left -= len(value) * times[prefix] + beside[prefix]
                    if left < 0:
                        raise TooManyPairs(at / len(prefixes))
                places[prefix] = range(first, len(values))
        found = [places.get(prefix, range(0)) for prefix in prefixes]
        asked = np.repeat(np.arange(keys.num_rows), [len(place) for place in found])
        if not values:
            return asked, no_rows(self._schema)
        rows = pa.RecordBatch.from_arrays(self._codec.decode(values), schema=self._schema)
        return asked, rows.take(pa.array([row for place in found for row in place], pa.int64()))

    def write(self, part: Part[MemoryJoin]) -> Iterator[int]:
        def put(bucket: int, batch: pa.RecordBatch) -> None:
            self._put(bucket, batch, part)

        frozen = self._as_table(part.memory).freeze()
        return put_in_steps(part, frozen.batches(), len(self._schema), STEP_ROWS, put)

    def _as_table(self, memory: MemoryJoin) -> MemoryJoinSide:
        return MemoryJoinSide(memory, self._side, self.name)

    def _put(self, bucket: int, batch: pa.RecordBatch, part: Part[MemoryJoin]) -> None:
        *columns, buckets, groups = batch.columns
        in_groups = groups.to_numpy()
        own = batch.select(list(self.key_columns)).columns
        numbers = part.take_numbers(batch.num_rows)
        keys, order = stored_keys_in_order(own, in_groups, buckets.to_numpy(), numbers)
        values = self._codec.encode(columns, batch.num_rows)
        self._family.write(keys, [values[i] for i in order.tolist()])
        part.note(self._side, bucket, in_groups)

    def _add_restored(self, namespace: int, rows: pa.RecordBatch) -> None:
        self._join.add(self._side, namespace, rows)

    def _bulk_rows(self, rows: pa.RecordBatch, part: Part[MemoryJoin]) -> BulkRows:
        *_, of_buckets, groups = rows.columns
        in_groups, buckets = groups.to_numpy(), of_buckets.to_numpy()
        part.note_each(self._side, buckets, in_groups)
        keys = rows.select(list(self.key_columns)).columns
        values = rows.select(self._schema.names).columns
        return BulkRows(keys, in_groups, buckets, part.take_numbers(rows.num_rows), values)
