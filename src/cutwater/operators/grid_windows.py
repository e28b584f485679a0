"""Windows on a grid that get the rows themselves: when they are told, early, in time and again. What is kept, subclasses say."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic

import numpy as np
import pyarrow as pa

from cutwater.flow.event_time import EventTime, Times
from cutwater.flow.watermarks import MAX_WATERMARK, Milliseconds
from cutwater.operators.early_results import C, EarlyResults
from cutwater.operators.keyed_state import KeyedStateOperator, key_schema
from cutwater.operators.late_records import in_time
from cutwater.operators.operator import Collector, Json, OperatorContext
from cutwater.operators.stored_watermark import restored_due, restored_watermark, stored_watermark
from cutwater.operators.told_before import ToldBefore
from cutwater.operators.window_ends import AT_ONCE, WindowEnds
from cutwater.operators.window_panes import is_over
from cutwater.operators.window_results import LATE
from cutwater.windows import Windows


class GridWindows(KeyedStateOperator, Generic[C]):
    """``time`` None: by the clock. Rows that change a window which was told already, within the allowed lateness, let it be told
    again for their keys; with ``early``, those that change an open one let it be told so often by the clock."""

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
        self._keys = tuple(keys)
        self._time = time
        self._ends = WindowEnds(windows, lateness)
        self._every = early
        self.where = "window"

    @property
    def by_clock(self) -> bool:
        return self._time is None or self._every is not None

    @abstractmethod
    def describe(self) -> str:
        """What its state was gathered by."""

    def _describe(self) -> str:
        kind = "processing" if self._time is None else "event"
        return f"window({self._ends.windows}, time={kind!r})"

    def _know_rows(self, rows: pa.Schema) -> None:
        self._rows = rows
        self._key_schema = key_schema(rows, self._keys, "window")
        if self._time is not None:
            self._time.check(rows, "window")

    def side_schemas(self) -> Mapping[str, pa.Schema]:
        return {} if self._time is None else {LATE: self._rows}

    def open(self, ctx: OperatorContext) -> None:
        self._now = ctx.now
        self._open_store(ctx)
        self._open_table()
        self._early = EarlyResults(self._every, self._nothing_changed)
        self._ends.reached = restored_watermark(ctx)
        self._resumed = restored_due(ctx)
        self._told_before = ToldBefore(ctx, self._keys, self._ends.lateness)
        for slot in self._slots():
            self._ends.expect_ends(slot, self._ends_of_slot(slot))
        self._early.note_all(self._ends.open_ones(), ctx.now())
        self._again: dict[Milliseconds, C] = {}
        """Windows that late rows changed, and the keys of those. Not in snapshots: it is told before the next one."""

    @abstractmethod
    def _open_table(self) -> None: ...

    @abstractmethod
    def _nothing_changed(self) -> C: ...

    @abstractmethod
    def _slots(self) -> Iterable[int]:
        """Where rows are kept: panes, or the starts of windows."""

    @abstractmethod
    def _ends_of_slot(self, slot: int) -> Iterable[Milliseconds]:
        """Of the windows that rows of the slot are in."""

    @abstractmethod
    def _gather(self, batch: pa.RecordBatch, times: Times) -> Iterator[tuple[int, Any]]:
        """Keep the rows: the slots that got some, and the keys of those."""

    @abstractmethod
    def _tell(self, end: Milliseconds, out: Collector, changed: C | None, *, early: bool = False) -> Iterator[bool]:
        """The window that ends there, in steps; only the keys that ``changed``, if that is given. Behind each step, whether
        none of them was told yet."""

    @abstractmethod
    def _drop(self, slot: int) -> Iterator[None]:
        """Forget its rows, in steps."""

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        if batch.num_rows == 0:
            return
        batch, times = self._in_time(batch, out)
        now = self._now()
        for slot, keys in self._gather(batch, times):
            ends = list(self._ends_of_slot(slot))
            for end in self._ends.expect_ends(slot, ends):
                self._again.setdefault(end, self._nothing_changed()).add(keys)
            for end in ends:
                if end - 1 > self._ends.reached:
                    self._early.note(end, keys, now)
        self.may_be_cut = not self._again
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

    def on_watermark(self, watermark: Milliseconds, out: Collector) -> Iterator[None]:
        yield from self._tell_again(out)
        if self._time is not None:
            yield from self._tell_until(watermark, out)
        out.advance(watermark)

    def resuming(self, out: Collector) -> Iterator[None]:
        if self._time is not None and self._resumed > self._ends.reached:
            yield from self._tell_until(self._resumed, out)

    def next_timer(self) -> Milliseconds | None:
        if self._again:
            return AT_ONCE
        due = [self._early.due, self._ends.first() if self._time is None else None]
        return min((each for each in due if each is not None), default=None)

    def on_processing_time(self, now: Milliseconds, out: Collector) -> Iterator[None]:
        yield from self._tell_again(out)
        if self._time is None:
            yield from self._tell_until(now - 1, out)
        for end, changed in self._early.take(now):
            if end - 1 > self._ends.reached:
                yield from self._tell_whole(end, out, changed, early=True)
                self.may_be_cut = True

    def end_of_input(self, out: Collector, *, drain: bool) -> Iterator[None]:
        """By the clock too the windows that are open when all input has ended are told, as they are."""
        if drain and self._time is None:
            yield from self._tell_until(MAX_WATERMARK, out)

    def _tell_again(self, out: Collector) -> Iterator[None]:
        """In steps, behind the batch that changed them: all their rows may have to be looked at."""
        while self._again:
            end = min(self._again)
            for _ in self._tell(end, out, self._again.pop(end)):
                yield
        self.may_be_cut = True

    def _tell_until(self, time: Milliseconds, out: Collector) -> Iterator[None]:
        self._ends.due_until = time
        for end in self._ends.due(time):
            yield from self._tell_whole(end, out, None)
            yield from self._reach(end - 1)
            self.may_be_cut = True
            yield
        yield from self._reach(time)
        self._ends.due_until = None

    def _tell_whole(
        self, end: Milliseconds, out: Collector, changed: C | None, *, early: bool = False
    ) -> Iterator[None]:
        """Half of a window: a snapshot could not say which of its keys were told. As long as none is, it need not."""
        for none_told in self._tell(end, out, changed, early=early):
            self.may_be_cut = none_told
            yield
        self.may_be_cut = False

    def _reach(self, time: Milliseconds) -> Iterator[None]:
        for slot in self._ends.reach(time):
            yield from self._drop(slot)

    def _inline(self) -> Json:
        reached = self._ends.reached
        return {**stored_watermark(reached, self._ends.due_until), **self._told_before.stored(reached)}

    def _some_told(self, end: Milliseconds) -> bool:
        """Whether ``_told_before`` has to be asked of each key."""
        return self._told_before.any_of(end)
