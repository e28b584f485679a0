"""Accumulators that are neither 64-bit words nor texts (decimals, nested values): Python objects."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.errors import DataError
from cutwater.flow.arrow import Array
from cutwater.state.index_kernels import CHUNK_ROWS
from cutwater.state.merging import merger
from cutwater.state.tables import Column, Merge, Rows

OBJECT_OVERHEAD = 4
"""How much larger Python's objects are than their bytes, roughly."""


class ObjectColumn:
    """In the same chunks as the words beside them. What a frozen column must not lose is put aside for it before it changes."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self._arrays: list[npt.NDArray[np.object_]] = []
        self._frozen: list[FrozenObjects] = []
        self._filled = 0
        """Cells with a value."""
        self._value_bytes = 0.0
        """What a value was seen to take, in columns."""

    @property
    def live_bytes(self) -> int:
        """Roughly, in memory: as if cells had values like those that came."""
        return int(self._filled * self._value_bytes * OBJECT_OVERHEAD)

    def add(self) -> None:
        self._arrays.append(np.full(CHUNK_ROWS, None, np.object_))

    def update(self, rows: Rows, merge: Merge, values: Array) -> None:
        frozen, merged = tuple(self._frozen), merger(merge, self._column)
        for row, value in zip(rows.tolist(), values.to_pylist(), strict=True):
            if value is None:
                continue
            chunk, at = self._arrays[row // CHUNK_ROWS], row % CHUNK_ROWS
            old = chunk[at]
            for each in frozen:
                each.before.setdefault(row, old)
            if old is None:
                chunk[at] = value
                self._filled += 1
            else:
                chunk[at] = merged(old, value)
        self._note_size(values)

    def read(self, rows: Rows) -> Array:
        return to_arrow(self._column, [self._arrays[row // CHUNK_ROWS][row % CHUNK_ROWS] for row in rows.tolist()])

    def _note_size(self, values: Array) -> None:
        """Each value that came counts as one of the cells, whose mean this is."""
        came = len(values) - values.null_count
        if came:
            part = min(1.0, came / self._filled)
            self._value_bytes += (values.nbytes / came - self._value_bytes) * part

    def freeze(self) -> "FrozenObjects":
        frozen = FrozenObjects(self._column, tuple(self._arrays), {}, self._frozen)
        self._frozen.append(frozen)
        return frozen


@dataclass(frozen=True, slots=True, eq=False)
class FrozenObjects:
    """The column as it was, for another thread: ``before`` has what changed since."""

    column: Column
    arrays: Sequence[npt.NDArray[np.object_]]
    before: dict[int, Any]
    others: "list[FrozenObjects]"
    """Those that the loop puts old values aside for."""

    def read(self, rows: Rows) -> Array:
        # First what is there now, then what was there before: what changes in between has been put aside.
        found = [(self.arrays[row // CHUNK_ROWS][row % CHUNK_ROWS], row) for row in rows.tolist()]
        return to_arrow(self.column, [self.before.get(row, value) for value, row in found])

    def release(self) -> None:
        self.others.remove(self)


def to_arrow(column: Column, values: list[Any]) -> Array:
    """Python values as a column; what does not fit is named."""
    try:
        return pa.array(values, column.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise DataError(f"a value of {column.name!r} does not fit {column.type}: {error}") from error
