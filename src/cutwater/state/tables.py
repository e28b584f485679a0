"""What operators see of a state table, whichever backend keeps it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

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
        """Find the row of each key, making new ones. ``keys`` has the table's key columns, in order."""

    def update(self, touched: Touched, updates: Sequence[Update]) -> None:
        """Apply ``updates`` record by record, in order."""

    def read(self, rows: Rows) -> list[Array]:
        """The accumulator columns of ``rows``."""

    def freeze(self) -> FrozenTable: ...


class RowTable(Protocol):
    """Python values by key, for functions that see one row at a time. Keys are tuples, values immutable."""

    @property
    def name(self) -> str: ...

    def get(self, key: tuple[Any, ...]) -> Any:
        """What was last put under ``key``; None if nothing."""

    def put(self, key: tuple[Any, ...], value: Any) -> None:
        """The table owns ``value`` from now on: nobody changes it in place once ``freeze`` was called."""

    def own(self, key: tuple[Any, ...], copy: Callable[[Any], Any]) -> Any:
        """The value under ``key``, safe to change in place until the next freeze: copied first if a snapshot may see it."""

    def delete(self, key: tuple[Any, ...]) -> None: ...

    def items(self) -> Iterator[tuple[tuple[Any, ...], Any]]: ...

    def freeze(self) -> FrozenTable: ...
