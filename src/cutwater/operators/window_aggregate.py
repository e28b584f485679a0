"""``k.window(...).agg(...)``: aggregates by key and window, in columns from end to end."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.aggregates import AggregateSpec
from cutwater.flow.columns import shown_keys
from cutwater.flow.event_time import EventTime, Times
from cutwater.flow.partitioning import by_number
from cutwater.flow.watermarks import Milliseconds
from cutwater.operators.accumulators import AccumulatorPlan, merge_of_partials, plan_aggregates, plan_partials
from cutwater.operators.late_records import in_time
from cutwater.operators.operator import Collector, OperatorContext
from cutwater.operators.told_windows import ToldWindows
from cutwater.operators.window_ends import WindowEnds
from cutwater.operators.window_panes import PANE, is_over, with_pane
from cutwater.operators.window_results import LATE, WINDOW_START, of_windows, windowed
from cutwater.state.encoded_keys import plain_schema
from cutwater.state.key_set import KeySet
from cutwater.state.tables import PaneTable, ReadsKeys, ReadsSmallPanes, Size
from cutwater.windows import Windows

TABLE = "windows"
PARTIAL, RAW = 0, 1
"""The ports: combined rows, which are in time or of no use to anybody, and records that may be late."""


class WindowAggregate(ToldWindows[KeySet]):
    """One row for each key of a window when its time is over. What time is, the subclasses say."""

    def __init__(
        self,
        keys: Sequence[str],
        results: Mapping[str, AggregateSpec],
        ends: WindowEnds,
        early: Milliseconds | None,
    ) -> None:
        super().__init__(keys, ends, early)
        self.results = dict(results)
        self._windows = ends.windows

    def describe(self) -> str:
        """What its state was gathered by."""
        return self._describe()

    def _bind(self, plan: AccumulatorPlan) -> pa.Schema:
        """``plan`` is that of the partial rows, by key and pane."""
        self._plan = plan
        self._key_schema = pa.schema([plan.key_schema.field(name) for name in self._keys])
        self._results = pa.schema([*self._key_schema, *(pa.field(result.name, result.type) for result in plan.results)])
        self._schema = windowed(self._results, len(self._keys), marked=self._every is not None)
        return self._schema

    def open(self, ctx: OperatorContext) -> None:
        self.where = f"window {ctx.name!r} ({ctx.uid})"
        self._open_store(ctx)
        columns = [(each.column, merge_of_partials(each.merge)) for each in self._plan.accumulators]
        self._table: PaneTable = self.store.panes(TABLE, self._key_schema, WINDOW_START, columns)
        self._small_panes: ReadsSmallPanes | None = self._table if isinstance(self._table, ReadsSmallPanes) else None
        self._open_windows(ctx, self._table.panes())

    def _nothing_changed(self) -> KeySet:
        return KeySet(self._partial_keys)

    @cached_property
    def _partial_keys(self) -> pa.Schema:
        return plain_schema(self._key_schema)

    def _keys_of(self, partial: pa.RecordBatch) -> pa.RecordBatch:
        return partial.select(list(range(len(self._keys))))

    def _size_of(self, slots: Iterable[int]) -> Size | None:
        return None if self._small_panes is None else self._small_panes.size_in_memory(slots)

    def _tell_together(self, ends: Sequence[Milliseconds], out: Collector) -> None:
        assert self._small_panes is not None
        partial, which = self._small_panes.read_each([self._slots_of_window(end) for end in ends])
        if partial.num_rows:
            out.emit(self._told(partial, np.array(ends, np.int64)[which], early=False))

    def _drop(self, slot: int) -> Iterator[bool]:
        was_small = self._size_of([slot]) is not None
        self._table.drop(slot)
        yield was_small

    def _tell(
        self, end: Milliseconds, out: Collector, changed: KeySet | None, *, early: bool = False
    ) -> Iterator[bool]:
        for batch in self._rows_of(self._windows.panes_of_window(end), changed):
            wanted = batch if changed is None else batch.filter(pa.array(changed.among(self._keys_of(batch))))
            if self._told_before.any_of(end, early=early):
                wanted = wanted.filter(pa.array(self._told_before.untold(wanted, end, early=early)))
            if wanted.num_rows:
                out.emit(self._told(wanted, np.full(wanted.num_rows, end, np.int64), early=early))
            yield False

    def _rows_of(self, panes: Iterable[int], changed: KeySet | None) -> Iterator[pa.RecordBatch]:
        """Of all keys, or at least of those that ``changed``."""
        if changed is not None and isinstance(self._table, ReadsKeys):
            return self._table.read_keys(panes, changed.all())
        return self._table.read(panes)

    def _told(self, partial: pa.RecordBatch, ends: Times, *, early: bool) -> pa.RecordBatch:
        """The rows of windows that end there as the user sees them."""
        width = len(self._keys)
        keys = [shown_keys(column).cast(field.type) for column, field in zip(partial.columns, self._key_schema)]  # noqa: B905 (the first ones)
        results = self._plan.results_of(partial.columns[width:])
        mark = early if self._every is not None else None
        window = of_windows(ends - self._windows.size, ends, mark)
        return pa.RecordBatch.from_arrays([*keys, *window, *results], schema=self._schema)


class EventTimeWindows(WindowAggregate):
    """By the watermark. Each key that late records change while ``lateness`` lasts is told again; what comes behind that goes
    to the side output ``late``, unchanged."""

    input_ports = 2
    kind_of_time = "event"

    def __init__(
        self,
        keys: Sequence[str],
        results: Mapping[str, AggregateSpec],
        windows: Windows,
        time: EventTime,
        lateness: Milliseconds,
        early: Milliseconds | None,
    ) -> None:
        super().__init__(keys, results, WindowEnds(windows, lateness), early)
        self._time = time

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        partial, raw = inputs
        by = (*self._keys, PANE)
        self._raw_schema = raw
        self._raw_plan = plan_aggregates(raw.append(pa.field(PANE, pa.int64())), by, self.results)
        return self._bind(plan_partials(partial, by, self.results))

    def side_schemas(self) -> Mapping[str, pa.Schema]:
        return {LATE: self._raw_schema}

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        batch = self._in_time(batch, out) if port == RAW else self._without_late(batch)
        for pane, part in by_number(batch.drop_columns([PANE]), batch.column(PANE).to_numpy()):
            self._table.merge(pane, part)
            self._note_changed(pane, self._keys_of(part))

    def _in_time(self, batch: pa.RecordBatch, out: Collector) -> pa.RecordBatch:
        """The records that are not late, as partial rows."""
        panes = self._windows.panes_of_times(self._time.of(batch, self.where))
        found = in_time(batch, panes, self._is_late(batch, panes), lambda rows: out.emit_side(LATE, rows))
        return self._raw_plan.partial_rows(with_pane(*found))

    def _without_late(self, partial: pa.RecordBatch) -> pa.RecordBatch:
        late = self._is_late(partial, partial.column(PANE).to_numpy())
        return partial.filter(pa.array(~late)) if late.any() else partial

    def _is_late(self, rows: pa.RecordBatch, panes: Times) -> npt.NDArray[np.bool_]:
        reached = self._told_before.time_of(rows, self._ends.reached)
        return is_over(self._windows, self._ends.lateness, panes, reached)


class ProcessingTimeWindows(WindowAggregate):
    """By the clock of the subtask that gathers: a record is in the window in which it arrives, so none is late."""

    kind_of_time = "processing"

    def __init__(
        self,
        keys: Sequence[str],
        results: Mapping[str, AggregateSpec],
        windows: Windows,
        early: Milliseconds | None,
    ) -> None:
        super().__init__(keys, results, WindowEnds(windows), early)

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        partial = inputs[0]
        with_pane = partial.insert(len(self._keys), pa.field(PANE, pa.int64()))
        return self._bind(plan_partials(with_pane, (*self._keys, PANE), self.results))

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        # A clock that was set back does not open windows that were told.
        reached = self._told_before.time_of(batch, self._ends.reached)
        times = np.full(batch.num_rows, np.maximum(self._now(), reached + 1), np.int64)
        for pane, part in by_number(batch, self._windows.panes_of_times(times)):
            self._table.merge(pane, part)
            self._note_changed(pane, self._keys_of(part))
