"""The table of the Memory backend for joins: rows of two sides, by bucket and key. They are added, and dropped by bucket."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.event_time import Times
from cutwater.flow.hashing import hash_columns, key_groups
from cutwater.flow.partitioning import by_number
from cutwater.state import chain_kernels as chains
from cutwater.state.encoded_keys import plain
from cutwater.state.frozen import KEY_GROUP_COLUMN, FrozenTable
from cutwater.state.key_index import KeyIndex
from cutwater.state.tables import JoinSide

CHUNK_ROWS = 131_072
"""Chunks are joined up to this many rows: few enough to be found quickly, small enough to be copied at once."""

FIRST_KEYS = 64


class MemoryJoinSide:
    """One side as a table of the store: what is frozen and restored. Implements what ``MemoryStore`` asks of its tables."""

    def __init__(self, join: "MemoryJoin", side: int, name: str) -> None:
        self.name = name
        self._join = join
        self._side = side
        self._schema = join.sides[side].schema
        self.key_columns = join.sides[side].keys
        self.stored_schema = pa.schema(
            [*self._schema, pa.field(join.bucket, pa.int64()), pa.field(KEY_GROUP_COLUMN, pa.int32())]
        )

    def freeze(self) -> FrozenTable:
        parts = [(number, tuple(bucket.sides[self._side].rows.chunks)) for number, bucket in self._join.of.items()]
        return FrozenJoinSide(self.name, self.stored_schema, self.key_columns, self._join.max_parallelism, tuple(parts))

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            rows = batch.select(self._schema.names).cast(self._schema)
            for bucket, part in by_number(rows, batch.column(self._join.bucket).to_numpy()):
                self._join.add(self._side, bucket, part)


class MemoryJoin:
    """Implements ``JoinTable``."""

    def __init__(self, sides: Sequence[JoinSide], bucket: str, max_parallelism: int) -> None:
        self.sides = tuple(sides)
        self.bucket = bucket
        self.max_parallelism = max_parallelism
        self.of: dict[int, _Bucket] = {}

    def buckets(self) -> Iterable[int]:
        return self.of.keys()

    def add(self, side: int, bucket: int, rows: pa.RecordBatch) -> None:
        found = self.of.get(bucket)
        if found is None:
            found = self.of[bucket] = _Bucket(self.sides)
        found.add(side, rows, self._ids(found, side, rows))

    def matches(self, side: int, bucket: int, rows: pa.RecordBatch) -> tuple[Times, pa.RecordBatch]:
        found = self.of.get(bucket)
        if found is None:
            return np.empty(0, np.int64), _empty(self.sides[1 - side].schema)
        return found.matches(1 - side, self._ids(found, side, rows))

    def drop(self, bucket: int) -> None:
        self.of.pop(bucket, None)

    def _ids(self, bucket: "_Bucket", side: int, rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
        keys = rows.select(list(self.sides[side].keys))
        return bucket.index.locate(keys.columns, keys.num_rows).rows


class _Bucket:
    """Both sides share the index: a key that is asked for is one that is added too."""

    def __init__(self, sides: Sequence[JoinSide]) -> None:
        keys = [sides[0].schema.field(name) for name in sides[0].keys]
        self.index = KeyIndex(pa.schema([field.with_type(plain(field.type)) for field in keys]))
        self.sides = tuple(_Side(side.schema) for side in sides)

    def add(self, side: int, rows: pa.RecordBatch, ids: npt.NDArray[np.int32]) -> None:
        self.sides[side].add(rows, ids, len(self.index))

    def matches(self, side: int, ids: npt.NDArray[np.int32]) -> tuple[Times, pa.RecordBatch]:
        return self.sides[side].matches(ids, len(self.index))


class _Side:
    def __init__(self, schema: pa.Schema) -> None:
        self.rows = _Rows(schema)
        self._newest = np.full(FIRST_KEYS, -1, np.int64)
        self._before = np.empty(FIRST_KEYS, np.int64)

    def add(self, rows: pa.RecordBatch, ids: npt.NDArray[np.int32], keys: int) -> None:
        first = len(self.rows)
        self.rows.append(rows)
        self._make_room(keys)
        self._before = _grown(self._before, len(self.rows))
        chains.append(ids, first, self._newest, self._before)

    def matches(self, ids: npt.NDArray[np.int32], keys: int) -> tuple[Times, pa.RecordBatch]:
        self._make_room(keys)
        total = chains.count(ids, self._newest, self._before)
        asked, rows = np.empty(total, np.int64), np.empty(total, np.int64)
        chains.expand(ids, self._newest, self._before, asked, rows)
        return asked, self.rows.take(rows)

    def _make_room(self, keys: int) -> None:
        had = len(self._newest)
        self._newest = _grown(self._newest, keys)
        self._newest[had:] = -1


def _grown(array: "npt.NDArray[np.int64]", needed: int) -> "npt.NDArray[np.int64]":
    if needed <= len(array):
        return array
    grown = np.empty(max(needed, 2 * len(array)), np.int64)
    grown[: len(array)] = array
    return grown


class _Rows:
    """Batches that are never changed, joined into larger ones now and then."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.chunks: list[pa.RecordBatch] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, batch: pa.RecordBatch) -> None:
        chunks = self.chunks
        chunks.append(batch)
        self._count += batch.num_rows
        # As a binary counter: each row is copied a logarithmic number of times.
        while (
            len(chunks) > 1
            and chunks[-2].num_rows <= 2 * chunks[-1].num_rows
            and chunks[-2].num_rows + chunks[-1].num_rows <= CHUNK_ROWS
        ):
            last = chunks.pop()
            chunks[-1] = pa.concat_batches([chunks[-1], last])  # type: ignore[attr-defined]  # the stubs lack it

    def take(self, rows: Times) -> pa.RecordBatch:
        """Those, in this order."""
        if len(rows) == 0:
            return _empty(self._schema)
        ends = np.cumsum([chunk.num_rows for chunk in self.chunks])
        which = np.searchsorted(ends, rows, side="right")
        order = np.argsort(which, kind="stable")
        parts: list[pa.RecordBatch] = []
        for chunk in np.unique(which).tolist():
            own = rows[which == chunk] - (ends[chunk] - self.chunks[chunk].num_rows)
            parts.append(self.chunks[chunk].take(pa.array(own)))
        if len(parts) == 1:
            return parts[0]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        joined: pa.RecordBatch = pa.concat_batches(parts)  # type: ignore[attr-defined]  # the stubs lack it
        return joined.take(back)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


@dataclass(frozen=True, slots=True)
class FrozenJoinSide:
    """Implements ``FrozenTable``: the rows as they were; nothing was copied."""

    name: str
    schema: pa.Schema
    keys: tuple[str, ...]
    max_parallelism: int
    parts: tuple[tuple[int, tuple[pa.RecordBatch, ...]], ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        for bucket, chunks in self.parts:
            for chunk in chunks:
                where = pa.array(np.full(chunk.num_rows, bucket, np.int64))
                groups = pa.array(key_groups(hash_columns(chunk, self.keys), self.max_parallelism))
                yield pa.RecordBatch.from_arrays([*chunk.columns, where, groups], schema=self.schema)

    def release(self) -> None:
        """Nothing was kept for it."""
