"""Values of row functions as they were restored: in columns until somebody asks for them.

A layer holds the number of a row in place of its value. To make Python values of millions before the first record takes longer than
to write them did, and most of them may never be asked for.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Any

import numpy as np
import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.flow.batches import gathered, taken
from cutwater.rows import values_of
from cutwater.state.row_layers import FROZEN_BATCH_BYTES, FROZEN_BATCH_ROWS, RowForm

CHUNK_BYTES = FROZEN_BATCH_BYTES // 2
"""Chunks are few, as the values of one batch are taken from all of them; what is taken from one is no more than a batch may be."""

Item = tuple[Any, Any]


class RowNumber(int):
    """In place of a value."""

    __slots__ = ()


class RestoredRows:
    """Their keys and values. Rows are added by the restore, and read by the loop and the snapshot thread."""

    def __init__(self, form: RowForm) -> None:
        self._form = form
        self._keys: list[list[Any]] = []
        self._values: list[pa.RecordBatch] = []
        """Each with the one column."""
        self._ends: list[int] = []
        self.waiting = 0
        """How many numbers stand in the layer of who keeps this; he counts."""

    def add(self, batches: Iterable[pa.RecordBatch], most: int) -> Iterator[Iterator[tuple[Any, RowNumber]]]:
        """Each key and what stands for its value, at most so many at a time."""
        *names, value, _ = self._form.schema.names
        for batch in gathered(batches, CHUNK_BYTES):
            keys = self._form.keys_of([batch.column(name) for name in names])
            start = self._ends[-1] if self._ends else 0
            # A copy: the batch may be a part of a mapped file, which goes with its checkpoint.
            own: pa.RecordBatch = pa.concat_batches([batch.select([value])])  # type: ignore[attr-defined]  # the stubs lack it
            self._keys.append(keys)
            self._values.append(own)
            self._ends.append(start + len(keys))
            for at in range(0, len(keys), most):
                some = keys[at : at + most]
                yield zip(some, map(RowNumber, range(start + at, start + at + len(some))), strict=True)

    def parts(self, most: int) -> Iterator[tuple[list[Any], Array]]:
        """All keys and values, whatever became of them, at most so many at a time."""
        for keys, values in zip(self._keys, self._values, strict=True):
            for start in range(0, len(keys), most):
                yield keys[start : start + most], values.column(0).slice(start, most)

    def value(self, row: RowNumber) -> Any:
        chunk = bisect_right(self._ends, row)
        values = self._values[chunk]
        [value] = values_of(values.column(0).slice(row - self._ends[chunk] + values.num_rows, 1))
        return value

    def values(self, rows: Sequence[RowNumber]) -> list[Any]:
        """Of some rows, one at least."""
        return values_of(taken(self._values, np.array(rows, np.int64)).column(0))

    def resolved(self, items: Iterable[Item]) -> Iterator[Item]:
        """Keys and values, where some are numbers of rows."""
        rest = iter(items)
        while part := list(islice(rest, FROZEN_BATCH_ROWS)):
            rows = [value for _, value in part if type(value) is RowNumber]
            values = iter(self.values(rows) if rows else ())
            for key, value in part:
                yield key, next(values) if type(value) is RowNumber else value

    def batches(self, items: Iterable[Item]) -> Iterator[pa.RecordBatch]:
        """The same as columns. Those that nobody asked for are columns already."""
        rest = iter(items)
        while part := list(islice(rest, FROZEN_BATCH_ROWS)):
            yield from self._form.batches(item for item in part if type(item[1]) is not RowNumber)
            stored = (item for item in part if type(item[1]) is RowNumber)
            for chunk, own in groupby(stored, lambda item: bisect_right(self._ends, item[1])):
                keys, rows = zip(*own, strict=True)
                start = self._ends[chunk] - self._values[chunk].num_rows
                values = self._values[chunk].take(np.array(rows, np.int64) - start)
                yield self._form.batch_of(list(keys), values.column(0))
