"""The table of the Memory backend for joins: rows of two sides, by bucket and key. They are added, and dropped by bucket."""

import sys
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.event_time import Times
from cutwater.flow.partitioning import by_number
from cutwater.state import chain_kernels
from cutwater.state.appended_rows import AppendedRows, HeldRows, no_rows
from cutwater.state.bucket_changes import BucketChanges
from cutwater.state.bucket_history import BucketHistory, Moment
from cutwater.state.bytes_of_rows import bytes_of_rows, least_bytes
from cutwater.state.compared_keys import equal_keys
from cutwater.state.frozen import KEY_GROUP_COLUMN
from cutwater.state.key_index import KeyIndex
from cutwater.state.tables import JoinSide, TooManyPairs

FIRST_KEYS = 64

PROMOTED_ROWS = 256
"""A bucket of fewer rows has no index: there may be very many small ones, and an index has its price."""

COMPARED_PAIRS = 1 << 12
"""For so many asked and held keys it takes less time to compare them all than to make an index."""

BUCKET_BYTES = 2048
"""About what a bucket takes whatever is in it: most of it are the objects around a first, small batch."""


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

    def moment(self) -> Moment[HeldRows]:
        return self._join.moment(self._side)

    def restore(self, batches: Iterable[pa.RecordBatch]) -> None:
        restored: set[int] = set()
        for batch in batches:
            rows = batch.select(self._schema.names).cast(self._schema)
            for bucket, part in by_number(rows, batch.column(self._join.bucket).to_numpy()):
                self._join.put_back(self._side, bucket, part)
                self._note_restored(bucket, self._join.of[bucket].rows[self._side])
                restored.add(bucket)
        self._join.index(restored)


class MemoryJoin:
    """Implements ``JoinTable``."""

    def __init__(self, sides: Sequence[JoinSide], bucket: str, max_parallelism: int) -> None:
        self.sides = tuple(sides)
        self.bucket = bucket
        self.max_parallelism = max_parallelism
        self.of: dict[int, _Bucket] = {}
        self._histories = tuple(BucketHistory[HeldRows]() for _ in sides)
        self._index_bytes = 0

    @property
    def bytes_beside_rows(self) -> int:
        """What it takes in memory beside the rows themselves."""
        return len(self.of) * BUCKET_BYTES + self._index_bytes

    def buckets(self) -> Iterable[int]:
        return self.of.keys()

    def add(self, side: int, bucket: int, rows: pa.RecordBatch) -> None:
        found = self.of.get(bucket)
        self._histories[side].note(bucket, None if found is None else found.rows[side])
        if found is None:
            found = self.of[bucket] = _Bucket(self.sides)
        self._index_bytes -= found.index_bytes
        found.add(side, rows)
        self._index_bytes += found.index_bytes

    def put_back(self, side: int, bucket: int, rows: pa.RecordBatch) -> None:
        """They are found when ``index`` was called."""
        if bucket not in self.of:
            self.of[bucket] = _Bucket(self.sides)
        self.of[bucket].rows[side].append(rows)

    def index(self, buckets: Iterable[int]) -> None:
        """All at once: an index that grows batch by batch takes longer."""
        for bucket in buckets:
            found = self.of[bucket]
            self._index_bytes -= found.index_bytes
            found.index()
            self._index_bytes += found.index_bytes

    def matches(
        self, side: int, bucket: int, rows: pa.RecordBatch, most: int | None = None
    ) -> tuple[Times, pa.RecordBatch]:
        found = self.of.get(bucket)
        if found is None or not len(found.rows[1 - side]):
            return np.empty(0, np.int64), no_rows(self.sides[1 - side].schema)
        self._index_bytes -= found.index_bytes
        try:
            return found.matches(side, rows, most)
        finally:
            self._index_bytes += found.index_bytes

    def drop(self, bucket: int) -> None:
        found = self.of.get(bucket)
        if found is not None:
            for history, rows in zip(self._histories, found.rows, strict=True):
                history.note(bucket, rows)
            self._index_bytes -= found.index_bytes
            del self.of[bucket]

    def moment(self, side: int) -> Moment[HeldRows]:
        """Of one side, all buckets as they are now."""
        return self._histories[side].moment(self.of, lambda bucket: bucket.rows[side])


class _Bucket:
    """The rows of both sides. Those of a small one are compared when they are asked for, or indexed for just that long."""

    def __init__(self, sides: Sequence[JoinSide]) -> None:
        self._sides = sides
        self.rows = tuple(AppendedRows(side.schema) for side in sides)
        self._index: _RowsByKey | None = None

    @property
    def index_bytes(self) -> int:
        return 0 if self._index is None else self._index.nbytes

    def add(self, side: int, rows: pa.RecordBatch) -> None:
        self.rows[side].append(rows)
        if self._index is not None:
            self._index.add(side, rows)
        else:
            self.index()

    def index(self) -> None:
        """The rows that are not in it, if there are enough of them for one."""
        if self._index is None and sum(map(len, self.rows)) > PROMOTED_ROWS:
            self._index = _RowsByKey(self._sides, sum(map(len, self.rows)))
        if self._index is not None:
            for side in range(len(self._sides)):
                self._add_to(self._index, side)

    def matches(self, side: int, rows: pa.RecordBatch, most: int | None) -> tuple[Times, pa.RecordBatch]:
        others = self.rows[1 - side]
        pairs = None
        if self._index is None and len(rows) * len(others) <= COMPARED_PAIRS:
            asked_keys = rows.select(list(self._sides[side].keys))
            pairs = equal_keys(asked_keys, others.joined(self._sides[1 - side].keys))
        if pairs is None:
            least = least_bytes(rows.schema) + least_bytes(self._sides[1 - side].schema)
            most_pairs = sys.maxsize if most is None else most // least
            pairs = (self._index or self._indexed(1 - side)).matches(side, rows, most_pairs)
        asked, found = pairs
        if most is not None and len(found):
            _check_room(rows, asked, others, found, most)
        return asked, others.take(found)

    def _indexed(self, side: int) -> "_RowsByKey":
        index = _RowsByKey(self._sides, len(self.rows[side]))
        self._add_to(index, side)
        return index

    def _add_to(self, index: "_RowsByKey", side: int) -> None:
        """The rows that are not in it. One chunk after the other: texts of all of them may be too many for one column."""
        known = index.rows(side)
        for chunk in self.rows[side].chunks:
            if known < chunk.num_rows:
                index.add(side, chunk.slice(known))
            known = max(known - chunk.num_rows, 0)


def _check_room(rows: pa.RecordBatch, asked: Times, others: AppendedRows, found: Times, most: int) -> None:
    """For the pairs of ``asked`` and ``found``. A few rows may be far wider than others are in the mean, and those of one key at
    that."""
    own = bytes_of_rows(rows, np.arange(rows.num_rows))
    if len(found) * (own.max() + others.widest()) > most:
        made = np.cumsum(own[asked] + others.bytes_of(found))
        if made[-1] > most:
            raise TooManyPairs(asked[np.searchsorted(made, most, side="right")] / rows.num_rows)


class _RowsByKey:
    """The numbers of rows of both sides, which share the index: a key that is asked for is one that is added too."""

    def __init__(self, sides: Sequence[JoinSide], expected: int) -> None:
        self._keys = tuple(list(side.keys) for side in sides)
        self._index = KeyIndex(pa.schema([sides[0].schema.field(name) for name in sides[0].keys]), expected)
        self._chains = tuple(_Chains() for _ in sides)

    @property
    def nbytes(self) -> int:
        return self._index.nbytes + sum(chains.nbytes for chains in self._chains)

    def rows(self, side: int) -> int:
        return self._chains[side].rows

    def add(self, side: int, rows: pa.RecordBatch) -> None:
        self._chains[side].add(self._ids(side, rows), len(self._index))

    def matches(self, side: int, rows: pa.RecordBatch, most: int) -> tuple[Times, Times]:
        return self._chains[1 - side].matches(self._ids(side, rows), len(self._index), most)

    def _ids(self, side: int, rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
        keys = rows.select(self._keys[side])
        return self._index.locate(keys.columns, keys.num_rows).rows


class _Chains:
    """The rows of one side that each key has."""

    def __init__(self) -> None:
        self.rows = 0
        self._newest = np.full(FIRST_KEYS, -1, np.int64)
        self._before = np.empty(FIRST_KEYS, np.int64)

    @property
    def nbytes(self) -> int:
        return self._newest.nbytes + self._before.nbytes

    def add(self, ids: npt.NDArray[np.int32], keys: int) -> None:
        """The keys of the rows that came next, of so many ``keys`` that there are."""
        first = self.rows
        self.rows += len(ids)
        self._make_room(keys)
        self._before = _grown(self._before, self.rows)
        chain_kernels.append(ids, first, self._newest, self._before)

    def matches(self, ids: npt.NDArray[np.int32], keys: int, most: int) -> tuple[Times, Times]:
        """Which of the asked ``ids``, and beside it the row."""
        self._make_room(keys)
        total = np.empty(1, np.int64)
        counted = chain_kernels.count(ids, self._newest, self._before, most, total)
        if counted < len(ids):
            raise TooManyPairs(counted / len(ids))
        asked, rows = np.empty(total[0], np.int64), np.empty(total[0], np.int64)
        chain_kernels.expand(ids, self._newest, self._before, asked, rows)
        return asked, rows

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
