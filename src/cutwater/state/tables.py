"""What operators see of a state table, whichever backend keeps it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.arrow import Array, Field
from cutwater.state.frozen import FrozenTable

Rows = npt.NDArray[np.int32]
Positions = npt.NDArray[np.int64]


class Merge(IntEnum):
    """How a value joins the accumulator of its key. The numbers are those that the kernels switch on."""

    COUNT = 0
    ADD = 1
    MIN = 2
    MAX = 3
    FIRST = 4
    LAST = 5


@dataclass(frozen=True, slots=True)
class Column:
    """One accumulator column. A new key starts as null, or as zero when the column is not nullable."""

    name: str
    type: pa.DataType
    nullable: bool = True

    @property
    def field(self) -> Field:
        return pa.field(self.name, self.type, nullable=self.nullable)


@dataclass(frozen=True, slots=True)
class Touched:
    """Where the records of one batch belong.

    ``rows``: the table row of each record. ``first``: for each key of the batch, in the order of first touch, the position
    of its first record; ``unique``: the table row of that key.
    """

    rows: Rows
    first: Positions
    unique: Rows


@dataclass(frozen=True, slots=True)
class Update:
    """``values`` (one for each record, null: nothing to do) join accumulator ``column``. COUNT without values counts records."""

    column: int
    merge: Merge
    values: Array | None = None


class AggregateTable(Protocol):
    """Keys with typed accumulator columns, for operators that work on whole batches."""

    @property
    def name(self) -> str: ...

    def __len__(self) -> int: ...

    def locate(self, keys: pa.RecordBatch) -> Touched:
        """Find the row of each key, making new ones. ``keys`` has the table's key columns, in order. The numbers of rows are
        good until the next call."""

    def update(self, touched: Touched, updates: Sequence[Update]) -> None:
        """Apply ``updates`` record by record, in order."""

    def read(self, rows: Rows) -> list[Array]:
        """The accumulator columns of ``rows``."""

    def freeze(self) -> FrozenTable: ...


class PaneTable(Protocol):
    """Partial rows of windows: key columns and accumulator columns, by pane (milliseconds: where it begins) and key."""

    @property
    def name(self) -> str: ...

    def panes(self) -> Iterable[int]:
        """Those that have rows, in any order."""

    def merge(self, pane: int, partial: pa.RecordBatch) -> None:
        """Rows join those of their keys. The batch is kept: nobody changes it."""

    def read(self, panes: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """One row for each key of any of ``panes``, merged, in bounded batches. Empty ones may come between two steps of the
        work. Nothing is merged or dropped meanwhile."""

    def drop(self, pane: int) -> None: ...

    def freeze(self) -> FrozenTable: ...


@runtime_checkable
class ReadsKeys(Protocol):
    """A ``PaneTable`` that finds the rows of few keys without reading the others."""

    def read_keys(self, panes: Iterable[int], keys: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """As ``read``, but perhaps without keys that are not among ``keys``. These are all different."""


class Size(NamedTuple):
    """Of what is in memory."""

    rows: int
    bytes: int


@runtime_checkable
class ReadsSmallPanes(Protocol):
    """A ``PaneTable`` that reads many panes of few rows sooner together than one after the other."""

    def size_in_memory(self, panes: Iterable[int]) -> Size | None:
        """Of rows that are not merged yet. None: not all of these panes are small, or in memory."""

    def read_each(self, sets: Sequence[Iterable[int]]) -> tuple[pa.RecordBatch, Positions]:
        """As ``read`` of each of ``sets``, one behind the other, and for each row the number of its set. All of them have a
        ``size_in_memory``."""


@dataclass(frozen=True, slots=True)
class JoinSide:
    """The rows of one side of a join, and which of their columns are the key."""

    schema: pa.Schema
    keys: tuple[str, ...]


class TooManyPairs(Exception):
    """Of the first rows that were asked for, about such a ``share``, the pairs would not be too many; 0.0: of none, or it is not
    known."""

    def __init__(self, share: float) -> None:
        super().__init__(share)
        self.share = share


class JoinTable(Protocol):
    """Rows of two sides (0 and 1), by bucket and key. Keys have no nulls; both sides have the same types of keys."""

    def buckets(self) -> Iterable[int]:
        """Those that have rows, in any order."""

    def add(self, side: int, bucket: int, rows: pa.RecordBatch) -> None:
        """The batch is kept: nobody changes it."""

    def matches(
        self, side: int, bucket: int, rows: pa.RecordBatch, most: int | None = None
    ) -> tuple[Positions, pa.RecordBatch]:
        """All pairs of ``rows``, which are of ``side``, and rows of the other side with the same key, in that bucket: which of
        ``rows``, and beside it the other row. In the order of ``rows``, then of arrival.

        TooManyPairs if they had far more than ``most`` bytes, which is found out without making them.
        """

    def drop(self, bucket: int) -> None: ...


class BucketTable(Protocol):
    """Rows by bucket, those of a key in the order in which they came."""

    @property
    def name(self) -> str: ...

    def buckets(self) -> Iterable[int]:
        """Those that have rows, in any order."""

    def add(self, bucket: int, rows: pa.RecordBatch) -> None:
        """The batch is kept: nobody changes it."""

    def read(self, buckets: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """The rows that are there now, those of a key one bucket behind the other. A batch is read when it is asked for: rows may
        be added and all be frozen meanwhile, but none of ``buckets`` dropped."""

    def drop(self, bucket: int) -> None: ...

    def freeze(self) -> FrozenTable: ...


@runtime_checkable
class KnowsSizes(Protocol):
    """A ``BucketTable`` that tells what it could give at once."""

    def size_in_memory(self, buckets: Iterable[int]) -> Size | None:
        """None: not all of their rows are in memory."""


@runtime_checkable
class ReadsInShares(Protocol):
    """A ``BucketTable`` whose rows may be more than memory holds: who needs all rows of a key at once need not have those of all
    keys."""

    def shares(self, buckets: Iterable[int]) -> Iterator[Iterator[pa.RecordBatch]]:
        """As ``read``, but all rows of a key are in one share. Each is read to its end before the next is asked for. One without
        rows is a step on the way to others."""


class RowTable(Protocol):
    """Python values by key, for functions that see one row at a time.

    A key is the key column's value, or a tuple of them when there are several. The table owns what is put into it: nobody
    changes such a value in place, except one that ``own`` gave, until the next freeze.
    """

    @property
    def name(self) -> str: ...

    def get(self, key: Any) -> Any:
        """What was last put under ``key``; None if nothing."""

    def put(self, key: Any, value: Any) -> None: ...

    def own(self, key: Any, copy: Callable[[Any], Any]) -> Any:
        """The value under ``key``, safe to change in place: copied first if a snapshot may see it. None if nothing."""

    def delete(self, key: Any) -> None: ...

    def items(self) -> Iterator[tuple[Any, Any]]:
        """All keys and values; nothing may be put or deleted meanwhile."""

    def freeze(self) -> FrozenTable: ...


@runtime_checkable
class ReadsAhead(Protocol):
    """A ``RowTable`` that reads many values sooner than one after the other."""

    def expect(self, keys: Sequence[Any]) -> None:
        """These keys are asked for next, in place of those that were expected before: their values may be read at once."""


@runtime_checkable
class RestoresColumns(Protocol):
    """A ``RowTable`` that gives what was restored sooner as columns than as Python values."""

    def restored(self, most: int) -> Iterator[tuple[list[Any], Array]]:
        """Called before anything is put: all rows, at most so many at a time, as keys and the column of their values. Rows may be
        put and deleted, and all be frozen, before the next ones are asked for: those may be among them then, or not."""


@runtime_checkable
class RestoresKeys(Protocol):
    """A ``RowTable`` that gives the keys of what was restored without a look at the values."""

    def restored_keys(self, most: int) -> Iterator[pa.RecordBatch]:
        """Called before anything is put, and read to its end: the columns of all keys, at most so many rows at a time."""


See = Callable[[list[Any], Array], None]
"""Gets keys, and the column of their values."""


@runtime_checkable
class ShowsRestored(Protocol):
    """A ``KeyedStateStore`` that shows the rows of a ``RowTable`` on their way into it: to read them back takes longer."""

    def show_restored(self, name: str, see: See) -> bool:
        """Called when all that is restored was given, before the table is created: then all its rows go by ``see``, each once.
        False: they do not, as they came in another way. Then the table has to be asked."""
