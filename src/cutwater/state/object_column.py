"""Accumulators that are neither 64-bit words nor texts (decimals, nested values): Python objects."""

import decimal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.errors import DataError
from cutwater.flow.arrow import Array
from cutwater.state.index_kernels import CHUNK_ROWS
from cutwater.state.tables import Column, Merge, Rows

_EXACT_DECIMALS = decimal.Context(prec=80)


class ObjectColumn:
    """In the same chunks as the words beside them, copied like those."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self._arrays: list[npt.NDArray[np.object_]] = []

    def add(self) -> None:
        self._arrays.append(np.full(CHUNK_ROWS, None, np.object_))

    def replace(self, chunk: int) -> None:
        self._arrays[chunk] = self._arrays[chunk].copy()

    def update(self, rows: Rows, merge: Merge, values: Array) -> None:
        for row, value in zip(rows.tolist(), values.to_pylist(), strict=True):
            if value is None:
                continue
            chunk, at = self._arrays[row // CHUNK_ROWS], row % CHUNK_ROWS
            old = chunk[at]
            chunk[at] = value if old is None else merged_value(merge, old, value)

    def read(self, rows: Rows) -> Array:
        return _read(self._column, rows, self._arrays)

    def freeze(self) -> "FrozenObjects":
        return FrozenObjects(self._column, tuple(self._arrays))


@dataclass(frozen=True, slots=True)
class FrozenObjects:
    """The column as it was."""

    column: Column
    arrays: Sequence[npt.NDArray[np.object_]]

    def read(self, rows: Rows) -> Array:
        return _read(self.column, rows, self.arrays)

    def release(self) -> None:
        """Nothing to give back."""


def _read(column: Column, rows: Rows, chunks: Sequence[npt.NDArray[np.object_]]) -> Array:
    return to_arrow(column, [chunks[row // CHUNK_ROWS][row % CHUNK_ROWS] for row in rows.tolist()])


def merged_value(merge: Merge, old: Any, value: Any) -> Any:
    """What two values become that are both there."""
    match merge:
        case Merge.ADD:
            return _EXACT_DECIMALS.add(old, value) if isinstance(old, decimal.Decimal) else old + value
        case Merge.MIN:
            return min(value, old)
        case Merge.MAX:
            return max(value, old)
        case Merge.FIRST:
            return old
        case _:
            return value


def to_arrow(column: Column, values: list[Any]) -> Array:
    """Python values as a column; what does not fit is named."""
    try:
        return pa.array(values, column.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise DataError(f"a value of {column.name!r} does not fit {column.type}: {error}") from error
