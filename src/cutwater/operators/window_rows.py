"""Windows that keep their rows, in columns: for functions of the user and for expressions over whole windows."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.batches import joined, pieces, taken
from cutwater.flow.event_time import Times
from cutwater.flow.partitioning import by_number, side_by_side
from cutwater.flow.watermarks import Milliseconds
from cutwater.operators.grid_windows import GridWindows
from cutwater.operators.operator import Collector
from cutwater.operators.window_results import WINDOW_END, WINDOW_START, of_windows, with_window
from cutwater.state.frozen import refuse_reserved
from cutwater.state.key_index import KeyIndex
from cutwater.state.key_set import KeySet
from cutwater.state.tables import BucketTable, KnowsSizes, ReadsInShares, Size

TABLE = "windows"
ROWS_A_STEP = 4096
ROWS_READ, BATCHES_READ, BYTES_READ = 32_768, 256, 8 << 20
"""In one step, whichever comes first: many small batches take long, however few rows they have."""


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows of some keys, those of one key side by side and in the order in which they came. Of key i: ``edges[i]`` to
    ``edges[i + 1]``."""

    rows: pa.RecordBatch
    edges: npt.NDArray[np.int64]

    @property
    def first(self) -> pa.RecordBatch:
        """One row of each key."""
        return self.rows.take(self.edges[:-1])

    @property
    def groups(self) -> npt.NDArray[np.int64]:
        """For each row, the number of its key."""
        return np.repeat(np.arange(len(self.edges) - 1), np.diff(self.edges))


class WindowRows(GridWindows[KeySet]):
    """Keeps the rows by pane and hands those of each key over when the window is told."""

    def describe(self) -> str:
        return f"{self._describe()} of rows"

    def _know_rows(self, rows: pa.Schema) -> None:
        super()._know_rows(rows)
        for column in rows.names:
            refuse_reserved(column, "window")

    def _open_table(self) -> None:
        pane = WINDOW_START
        while pane in self._rows.names:  # as results of another window have it
            pane += "_"
        self._table: BucketTable = self.store.buckets(TABLE, self._rows, self._keys, pane)
        self._sizes: KnowsSizes | None = self._table if isinstance(self._table, KnowsSizes) else None
        self._shares: ReadsInShares | None = self._table if isinstance(self._table, ReadsInShares) else None

    def _nothing_changed(self) -> KeySet:
        return KeySet(self._key_schema)

    def _slots(self) -> Iterable[int]:
        return list(self._table.buckets())

    def _gather(self, batch: pa.RecordBatch, times: Times) -> Iterator[tuple[int, Any]]:
        for pane, part in by_number(batch, self._ends.windows.panes_of_times(times)):
            self._table.add(pane, part)
            yield pane, self._keys_of(part)

    def _size_of(self, slots: Iterable[int]) -> Size | None:
        return self._sizes.size_in_memory(slots) if self._sizes is not None else None

    def _tell_together(self, ends: Sequence[Milliseconds], out: Collector) -> None:
        read = [[*self._table.read(self._slots_of_window(end))] for end in ends]
        if not any(read):
            return
        rows = joined([batch for batches in read for batch in batches])
        of_rows = np.repeat(np.array(ends, np.int64), [sum(batch.num_rows for batch in batches) for batches in read])
        index = KeyIndex(self._key_schema.append(pa.field(WINDOW_END, pa.int64())))
        numbers = index.locate([*self._keys_of(rows).columns, pa.array(of_rows)], rows.num_rows).rows
        order, edges = side_by_side(numbers, len(index))
        self._emit(KeyedRows(rows.take(order), edges), of_rows[order[edges[:-1]]], out, early=False)

    def _emit(self, part: KeyedRows, ends: Times, out: Collector, *, early: bool) -> None:
        """Of each key, its results in a window that ends there."""
        results, ends = self._results_of(part, ends, out)
        if results.num_rows:
            window = of_windows(ends - self._ends.windows.size, ends, early if self._every is not None else None)
            out.emit(with_window(results, self.where_ends_stand, window, self._schema))

    def _drop(self, slot: int) -> Iterator[bool]:
        size = self._size_of([slot])
        self._table.drop(slot)
        yield size is not None and size.rows <= ROWS_A_STEP

    def _tell(
        self, end: Milliseconds, out: Collector, changed: KeySet | None, *, early: bool = False
    ) -> Iterator[bool]:
        none_told = True
        for part in self._by_key(end, changed, early=early):
            if part is not None:
                none_told = False
                self._emit(part, np.full(len(part.edges) - 1, end, np.int64), out, early=early)
            yield none_told

    def _by_key(self, end: Milliseconds, changed: KeySet | None, *, early: bool) -> Iterator[KeyedRows | None]:
        """All rows of the window, in parts of whole keys. None between two steps towards a part."""
        panes = self._ends.windows.panes_of_window(end)
        for share in [self._table.read(panes)] if self._shares is None else self._shares.shares(panes):
            wanted = (self._wanted(batch, end, changed, early=early) for batch in _in_steps(share))
            yield from self._of_share(wanted)

    def _of_share(self, share: Iterable[pa.RecordBatch]) -> Iterator[KeyedRows | None]:
        """The rows of some keys."""
        index = KeyIndex(self._key_schema)
        batches: list[pa.RecordBatch] = []
        numbers: list[npt.NDArray[np.int32]] = []
        for batch in share:
            batches.append(batch)
            numbers.append(index.locate(self._keys_of(batch).columns, batch.num_rows).rows)
            yield None
        if len(index) == 0:
            yield None
            return
        order, edges = side_by_side(np.concatenate(numbers), len(index))
        yield None
        for some in _divided(edges, _rows_read(len(order), sum(batch.nbytes for batch in batches))):
            rows = taken(batches, order[some[0] : some[-1]])
            for own in _divided(some - some[0], ROWS_A_STEP):
                yield KeyedRows(rows.slice(own[0], own[-1] - own[0]), own - own[0])

    def _wanted(
        self, batch: pa.RecordBatch, end: Milliseconds, changed: KeySet | None, *, early: bool
    ) -> pa.RecordBatch:
        if self._told_before.any_of(end, early=early):
            batch = batch.filter(pa.array(self._told_before.untold(batch, end, early=early)))
        return batch if changed is None else batch.filter(pa.array(changed.among(self._keys_of(batch))))

    def _keys_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(list(self._keys))

    @property
    @abstractmethod
    def where_ends_stand(self) -> int:
        """Before which column of the results the window's columns are put."""

    @abstractmethod
    def _results_of(self, part: KeyedRows, ends: Times, out: Collector) -> tuple[pa.RecordBatch, Times]:
        """``ends``: where the window of each key ends; and then that of each result."""


def _in_steps(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, in so few batches that each is worth a step, and none is more."""
    waiting: list[pa.RecordBatch] = []
    rows, size = 0, 0
    for piece in (piece for batch in batches for piece in pieces(batch, _rows_read(batch.num_rows, batch.nbytes))):
        waiting.append(piece)
        rows += piece.num_rows
        size += piece.nbytes
        if rows >= ROWS_READ or len(waiting) >= BATCHES_READ or size >= BYTES_READ:
            yield joined(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield joined(waiting)


def _rows_read(rows: int, size: int) -> int:
    """In one step, where so many rows have so many bytes."""
    return max(1, min(ROWS_READ, BYTES_READ * rows // max(size, 1)))


def _divided(edges: npt.NDArray[np.int64], rows: int) -> Iterator[npt.NDArray[np.int64]]:
    """The edges of so many keys at a time that they have ``rows`` rows; one key alone may have more."""
    first, keys = 0, len(edges) - 1
    while first < keys:
        behind = min(int(np.searchsorted(edges, edges[first] + rows)), keys)
        yield edges[first : behind + 1]
        first = behind
