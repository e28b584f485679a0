"""Windows that keep their rows, in columns: for functions of the user and for expressions over whole windows."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.event_time import Times
from cutwater.flow.partitioning import by_number
from cutwater.flow.watermarks import Milliseconds
from cutwater.operators.early_results import ChangedKeys
from cutwater.operators.grid_windows import GridWindows
from cutwater.operators.operator import Collector
from cutwater.operators.window_results import WINDOW_START, of_window, with_window
from cutwater.state.key_index import KeyIndex
from cutwater.state.tables import BucketTable

TABLE = "windows"
ROWS_A_STEP = 4096


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


class WindowRows(GridWindows[ChangedKeys]):
    """Keeps the rows by pane and hands those of each key over when the window is told."""

    def describe(self) -> str:
        return f"{self._describe()} of rows"

    def _open_table(self) -> None:
        self._table: BucketTable = self.store.buckets(TABLE, self._rows, self._keys, WINDOW_START)

    def _nothing_changed(self) -> ChangedKeys:
        return ChangedKeys(self._key_schema)

    def _slots(self) -> Iterable[int]:
        return list(self._table.buckets())

    def _ends_of_slot(self, slot: int) -> Iterable[Milliseconds]:
        return self._ends.windows.ends_of_pane(slot)

    def _gather(self, batch: pa.RecordBatch, times: Times) -> Iterator[tuple[int, Any]]:
        for pane, part in by_number(batch, self._ends.windows.panes_of_times(times)):
            self._table.add(pane, part)
            yield pane, part.select(list(self._keys))

    def _drop(self, slot: int) -> Iterator[None]:
        self._table.drop(slot)
        yield from ()

    def _tell(
        self, end: Milliseconds, out: Collector, changed: ChangedKeys | None, *, early: bool = False
    ) -> Iterator[None]:
        mark = early if self._every is not None else None
        for part in self._by_key(end, changed):
            if part is not None:
                results = self._results_of(part, end, out)
                if results.num_rows:
                    window = of_window(end - self._ends.windows.size, end, results.num_rows, mark)
                    out.emit(with_window(results, self.where_ends_stand, window, self._schema))
            yield

    def _by_key(self, end: Milliseconds, changed: ChangedKeys | None) -> Iterator[KeyedRows | None]:
        """All rows of the window, in parts of whole keys; None between two steps towards them."""
        batches = [self._to_tell(batch, end) for batch in self._table.read(self._ends.windows.panes_of_window(end))]
        batches = [batch for batch in batches if batch.num_rows]
        if not batches:
            return
        keys = [batch.select(list(self._keys)) for batch in batches]
        if changed is not None:
            wanted = changed.among(keys)
            batches = [batch.filter(pa.array(own)) for batch, own in zip(batches, wanted, strict=True)]
            keys = [batch.select(list(self._keys)) for batch in batches]
        index = KeyIndex(self._key_schema)
        numbers = []
        for batch in keys:
            numbers.append(index.locate(batch.columns, batch.num_rows).rows)
            yield None
        ids = np.concatenate(numbers)
        order = np.argsort(ids, kind="stable")
        whole = pa.Table.from_batches(batches)
        starts = np.flatnonzero(np.diff(ids[order], prepend=-1))
        yield None
        for begin, stop in _steps(starts, len(ids)):
            rows = whole.take(order[begin:stop]).combine_chunks().to_batches()[0]
            own = starts[np.searchsorted(starts, begin) : np.searchsorted(starts, stop)] - begin
            yield KeyedRows(rows, np.append(own, stop - begin))

    def _to_tell(self, batch: pa.RecordBatch, end: Milliseconds) -> pa.RecordBatch:
        return batch.filter(pa.array(self._told_before.untold(batch, end))) if self._some_told(end) else batch

    @property
    @abstractmethod
    def where_ends_stand(self) -> int:
        """Before which column of the results the window's columns are put."""

    @abstractmethod
    def _results_of(self, part: KeyedRows, end: Milliseconds, out: Collector) -> pa.RecordBatch: ...


def _steps(starts: Times, rows: int) -> Iterator[tuple[int, int]]:
    """From where to where: whole keys, so many that a step is short, unless one key alone has more rows."""
    edges = [0]
    for start in starts.tolist():
        if start - edges[-1] >= ROWS_A_STEP:
            edges.append(start)
    return pairwise([*edges, rows])
