"""Values of row functions as they were restored: in columns until somebody asks for them.

A layer holds the number of a row in place of its value. To make Python values of millions before the first record takes longer than
to write them did, and most of them may never be asked for. Where most of a chunk were, the others are gathered anew.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.flow.batches import gathered, joined
from cutwater.rows import values_of
from cutwater.state.row_layers import FROZEN_BATCH_BYTES, FROZEN_BATCH_ROWS, RowForm

CHUNK_BYTES = FROZEN_BATCH_BYTES // 2
"""Chunks are few, as the values of one batch are taken from all of them; what is taken from one is no more than a batch may be."""
ROWS_LET_GO = 1 << 17
"""In a step, and those of one chunk more: all chunks may have few rows left at the same time."""
ROWS_OF_ANY_CHUNK = ROWS_LET_GO // 8
"""What it costs to let go of a chunk however few rows it has: their values may be large."""

Item = tuple[Any, Any]
Rows: TypeAlias = "array[int]"
"""Numbers of rows, each taken as it is found: a list of millions of ``RowNumber`` would be gone through all over memory again."""
Numbers = npt.NDArray[np.int64]


class RowNumber(int):
    """In place of a value."""

    __slots__ = ()


@dataclass(slots=True)
class _Chunk:
    """Its rows stay as they are, for snapshots that read them; which of them wait only the loop knows."""

    first: int
    """No row has a lower number."""
    numbers: Numbers | None
    """Of its rows, ascending. None: all from the first one on."""
    keys: list[Any]
    values: pa.RecordBatch
    """The one column."""
    waits: npt.NDArray[np.bool_]
    """Of each row, whether its number stands in the layer."""
    waiting: int

    def places(self, numbers: Any) -> Any:
        """Where those rows stand: of one number, or of many."""
        return numbers - self.first if self.numbers is None else np.searchsorted(self.numbers, numbers)

    def gathered(self) -> "_Chunk":
        """A copy of what waits."""
        rows = np.flatnonzero(self.waits)
        return _Chunk(
            self.first,
            rows + self.first if self.numbers is None else self.numbers[rows],
            [self.keys[row] for row in rows.tolist()],
            self.values.take(rows),
            np.ones(len(rows), np.bool_),
            len(rows),
        )


@dataclass(frozen=True, slots=True)
class HeldRows:
    """The rows that were held at some time: all whose numbers stood in the layer then. Read by the loop and the snapshot thread."""

    form: RowForm
    chunks: tuple[_Chunk, ...] = ()
    firsts: tuple[int, ...] = ()

    def by_chunk(self, numbers: Numbers) -> Iterator[tuple[_Chunk, Numbers]]:
        """The chunks of numbers that ascend, and where in them those rows stand."""
        stops = [*np.searchsorted(numbers, self.firsts[1:]).tolist(), len(numbers)]
        for chunk, start, stop in zip(self.chunks, [0, *stops[:-1]], stops, strict=True):
            if start < stop:
                yield chunk, chunk.places(numbers[start:stop])

    def place_of(self, row: int) -> tuple[_Chunk, int]:
        chunk = self.chunks[self._chunk_of(row)]
        return chunk, int(chunk.places(row))

    def values(self, rows: Rows) -> list[Any]:
        """Of some rows, one at least."""
        if len(rows) == 1:
            chunk, place = self.place_of(rows[0])
            return values_of(chunk.values.column(0).slice(place, 1))
        numbers = np.frombuffer(rows, np.int64)
        order = np.argsort(numbers)
        found = joined([chunk.values.take(places) for chunk, places in self.by_chunk(numbers[order])])
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return values_of(found.take(back).column(0))

    def resolved(self, items: Iterable[Item]) -> Iterator[Item]:
        """Keys and values, where some are numbers of rows."""
        rest = iter(items)
        while part := list(islice(rest, FROZEN_BATCH_ROWS)):
            rows = array("q", (value for _, value in part if type(value) is RowNumber))
            values = iter(self.values(rows) if rows else ())
            for key, value in part:
                yield key, next(values) if type(value) is RowNumber else value

    def batches(self, items: Iterable[Item]) -> Iterator[pa.RecordBatch]:
        """The same as columns. Those that nobody asked for are columns already."""
        rest = iter(items)
        while part := list(islice(rest, FROZEN_BATCH_ROWS)):
            yield from self.form.batches(item for item in part if type(item[1]) is not RowNumber)
            stored = (item for item in part if type(item[1]) is RowNumber)
            for at, own in groupby(stored, lambda item: self._chunk_of(item[1])):
                keys, rows = zip(*own, strict=True)
                chunk = self.chunks[at]
                values = chunk.values.take(chunk.places(np.array(rows, np.int64)))
                yield self.form.batch_of(list(keys), values.column(0))

    def _chunk_of(self, row: int) -> int:
        return bisect_right(self.firsts, row) - 1


class RestoredRows:
    """Their keys and values, as long as somebody may ask for them. Rows are added by the restore; all else is the loop's."""

    def __init__(self, form: RowForm) -> None:
        self._chunks: dict[int, _Chunk] = {}
        """By their first numbers, which ascend."""
        self._added = 0
        self._loose: set[int] = set()
        """The first numbers of chunks of which at least a half waits no more."""
        self.held = HeldRows(form)

    def add(self, batches: Iterable[pa.RecordBatch], most: int) -> Iterator[Iterator[tuple[Any, RowNumber]]]:
        """Each key and what stands for its value, at most so many at a time. Each of them waits until it is ``done_with``."""
        form = self.held.form
        *names, value, _ = form.schema.names
        for batch in gathered(batches, CHUNK_BYTES):
            keys = form.keys_of([batch.column(name) for name in names])
            start, rows = self._added, len(keys)
            # A copy: the batch may be a part of a mapped file, which goes with its checkpoint.
            own: pa.RecordBatch = pa.concat_batches([batch.select([value])])  # type: ignore[attr-defined]  # the stubs lack it
            self._chunks[start] = _Chunk(start, None, keys, own, np.ones(rows, np.bool_), rows)
            self._added += rows
            for at in range(0, rows, most):
                some = keys[at : at + most]
                yield zip(some, map(RowNumber, range(start + at, start + at + len(some))), strict=True)
        self._hold()

    def parts(self, most: int) -> Iterator[tuple[list[Any], Array]]:
        """All keys and values, whatever becomes of them meanwhile, at most so many at a time."""
        return _parts(list(reversed(self.held.chunks)), most)

    def done_with(self, rows: Rows) -> None:
        """They stand in the layer no more."""
        if len(rows) == 1:
            self._done_with(*self.held.place_of(rows[0]), 1)
            return
        for chunk, places in self.held.by_chunk(np.sort(np.frombuffer(rows, np.int64))):
            self._done_with(chunk, places, len(places))

    def _done_with(self, chunk: _Chunk, places: int | Numbers, rows: int) -> None:
        chunk.waits[places] = False
        chunk.waiting -= rows
        if 2 * chunk.waiting <= len(chunk.keys):
            self._loose.add(chunk.first)

    def let_go(self) -> int:
        """A bounded part of the rows that wait no more: of chunks of which few do. How many were gone through. Called while no
        snapshot is read, which would hold them all."""
        left = ROWS_LET_GO
        while self._loose and left > 0:
            chunk = self._chunks[self._loose.pop()]
            left -= len(chunk.keys) + ROWS_OF_ANY_CHUNK
            if chunk.waiting:
                self._chunks[chunk.first] = chunk.gathered()
            else:
                del self._chunks[chunk.first]
        if left < ROWS_LET_GO:
            self._hold()
        return ROWS_LET_GO - left

    def _hold(self) -> None:
        self.held = HeldRows(self.held.form, tuple(self._chunks.values()), tuple(self._chunks))


def _parts(chunks: list[_Chunk], most: int) -> Iterator[tuple[list[Any], Array]]:
    """Of the last one first, which is held no longer than it is read."""
    while chunks:
        chunk = chunks.pop()
        for start in range(0, len(chunk.keys), most):
            yield chunk.keys[start : start + most], chunk.values.column(0).slice(start, most)
