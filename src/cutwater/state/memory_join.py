"""The table of the Memory backend for joins: rows of two sides, by bucket and key. They are added, and dropped by bucket."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.event_time import Times
from cutwater.flow.partitioning import by_number
from cutwater.state import chain_kernels as chains
from cutwater.state.appended_rows import AppendedRows, BucketChanges, no_rows
from cutwater.state.frozen import KEY_GROUP_COLUMN
from cutwater.state.key_index import KeyIndex
from cutwater.state.tables import JoinSide

FIRST_KEYS = 64


class MemoryJoinSide(BucketChanges):
    """One side as a table of the store: what is frozen and restored. Implements what ``MemoryStore`` asks of its tables."""

    holds_whole_rows = True

    def __init__(self, join: "MemoryJoin", side: int, name: str) -> None:
        super().__init__()
        self.name = name
        self._join = join
        self._side = side
        self.bucket_column = join.bucket
        self.max_parallelism = join.max_parallelism
        self._schema = join.sides[side].schema
        self.key_columns = join.sides[side].keys
        self.stored_schema = pa.schema(
            [*self._schema, pa.field(join.bucket, pa.int64()), pa.field(KEY_GROUP_COLUMN, pa.int32())]
        )

    def appended(self) -> Iterable[tuple[int, AppendedRows]]:
        return ((number, bucket.sides[self._side].rows) for number, bucket in self._join.of.items())

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            rows = batch.select(self._schema.names).cast(self._schema)
            for bucket, part in by_number(rows, batch.column(self._join.bucket).to_numpy()):
                self._join.add(self._side, bucket, part)
                self._note_restored(bucket, self._join.of[bucket].sides[self._side].rows)


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
            return np.empty(0, np.int64), no_rows(self.sides[1 - side].schema)
        return found.matches(1 - side, self._ids(found, side, rows))

    def drop(self, bucket: int) -> None:
        self.of.pop(bucket, None)

    def _ids(self, bucket: "_Bucket", side: int, rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
        keys = rows.select(list(self.sides[side].keys))
        return bucket.index.locate(keys.columns, keys.num_rows).rows


class _Bucket:
    """Both sides share the index: a key that is asked for is one that is added too."""

    def __init__(self, sides: Sequence[JoinSide]) -> None:
        self.index = KeyIndex(pa.schema([sides[0].schema.field(name) for name in sides[0].keys]))
        self.sides = tuple(_Side(side.schema) for side in sides)

    def add(self, side: int, rows: pa.RecordBatch, ids: npt.NDArray[np.int32]) -> None:
        self.sides[side].add(rows, ids, len(self.index))

    def matches(self, side: int, ids: npt.NDArray[np.int32]) -> tuple[Times, pa.RecordBatch]:
        return self.sides[side].matches(ids, len(self.index))


class _Side:
    def __init__(self, schema: pa.Schema) -> None:
        self.rows = AppendedRows(schema)
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
