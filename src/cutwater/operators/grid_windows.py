"""Windows on a grid that get the rows themselves, in event time or by the clock. What is kept, subclasses say."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic

import numpy as np
import pyarrow as pa

from cutwater.flow.event_time import EventTime, Times
from cutwater.flow.watermarks import Milliseconds
from cutwater.operators.early_results import C
from cutwater.operators.keyed_state import key_schema
from cutwater.operators.late_records import in_time
from cutwater.operators.operator import Collector, OperatorContext
from cutwater.operators.told_windows import ToldWindows
from cutwater.operators.window_ends import WindowEnds
from cutwater.operators.window_panes import is_over
from cutwater.operators.window_results import LATE
from cutwater.windows import Windows


class GridWindows(ToldWindows[C], Generic[C]):
    """``time`` None: by the clock."""

    _schema: pa.Schema
    """Of the results, with the window's columns; ``output_schema`` sets it."""

    def __init__(
        self,
        keys: Sequence[str],
        windows: Windows,
        time: EventTime | None,
        lateness: Milliseconds,
        early: Milliseconds | None,
    ) -> None:
        super().__init__(keys, WindowEnds(windows, lateness), early)
        self._time = time
        self.kind_of_time = "processing" if time is None else "event"

    @abstractmethod
    def describe(self) -> str:
        """What its state was gathered by."""

    def _know_rows(self, rows: pa.Schema) -> None:
        self._rows = rows
        self._key_schema = key_schema(rows, self._keys, "window")
        if self._time is not None:
            self._time.check(rows, "window")

    def side_schemas(self) -> Mapping[str, pa.Schema]:
        return {} if self._time is None else {LATE: self._rows}

    def open(self, ctx: OperatorContext) -> None:
        self._open_store(ctx)
        self._open_table()
        self._open_windows(ctx, self._slots())

    @abstractmethod
    def _open_table(self) -> None: ...

    @abstractmethod
    def _slots(self) -> Iterable[int]:
        """Where rows are kept: panes, or the starts of windows."""

    @abstractmethod
    def _gather(self, batch: pa.RecordBatch, times: Times) -> Iterator[tuple[int, Any]]:
        """Keep the rows: the slots that got some, and the keys of those."""

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        if batch.num_rows == 0:
            return
        batch, times = self._in_time(batch, out)
        for slot, keys in self._gather(batch, times):
            self._note_changed(slot, keys)
        self.store.tend()

    def _in_time(self, batch: pa.RecordBatch, out: Collector) -> tuple[pa.RecordBatch, Times]:
        if self._time is None:
            # A clock that was set back does not open windows that were told.
            reached = self._told_before.time_of(batch, self._ends.reached)
            return batch, np.full(batch.num_rows, np.maximum(self._now(), reached + 1), np.int64)
        times = self._time.of(batch, self.where)
        windows = self._ends.windows
        reached = self._told_before.time_of(batch, self._ends.reached)
        late = is_over(windows, self._ends.lateness, windows.panes_of_times(times), reached)
        return in_time(batch, times, late, lambda rows: out.emit_side(LATE, rows))
