"""``k.window(...).join(other)``: pairs of records with the same key in the same window."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.event_time import EventTime, Times
from cutwater.flow.partitioning import by_number
from cutwater.flow.watermarks import Milliseconds
from cutwater.operators.join import TimedJoin
from cutwater.operators.joined_rows import Joined
from cutwater.operators.window_panes import is_over
from cutwater.operators.window_results import of_window, refuse_what_no_calendar_has, windowed, with_window
from cutwater.windows import Windows


class WindowJoin(TimedJoin):
    """Pairs come out when the later record arrives, once for each window that both are in; a window's rows are dropped when it is
    over. A bucket is a window, by its start."""

    def __init__(
        self, left: Sequence[str], right: Sequence[str], times: tuple[EventTime, EventTime], windows: Windows
    ) -> None:
        super().__init__(left, right, times)
        self._windows = windows

    def describe(self) -> str:
        return f"window({self._windows}).join"

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        self._schema = windowed(super().output_schema(inputs), len(self._keys[0]), marked=False)
        return self._schema

    def _is_late(self, times: Times, reached: Times | Milliseconds) -> npt.NDArray[np.bool_]:
        return is_over(self._windows, 0, self._windows.panes_of_times(times), reached)

    def _join_in_time(self, batch: pa.RecordBatch, times: Times, port: int, joined: Joined) -> None:
        last_starts = self._windows.last_ends(self._windows.panes_of_times(times)) - self._windows.size
        reached = self._reached(batch, port)
        for back in range(0, self._windows.size, self._windows.slide):
            starts = last_starts - back
            ends = starts + self._windows.size
            open_ones = (times < ends) & (ends - 1 > reached)
            for start, part in by_number(batch.filter(pa.array(open_ones)), starts[open_ones]):
                refuse_what_no_calendar_has(start, start + self._windows.size)
                self._meet(part, port, start, joined)
                joined.rows.append((start, part))

    def _pairs_of(
        self, batch: pa.RecordBatch, port: int, bucket: int, asked: Times, others: pa.RecordBatch
    ) -> pa.RecordBatch:
        pairs = super()._pairs_of(batch, port, bucket, asked, others)
        window = of_window(bucket, bucket + self._windows.size, pairs.num_rows, early=None)
        return with_window(pairs, len(self._keys[0]), window, self._schema)

    def _is_done(self, bucket: int) -> bool:
        return bucket + self._windows.size - 1 <= self._watermark
