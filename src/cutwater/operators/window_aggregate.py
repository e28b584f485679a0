"""``k.window(...).agg(...)``: aggregates by key and window, in columns from end to end."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from cutwater.aggregates import AggregateSpec
from cutwater.errors import SchemaError
from cutwater.flow.arrow import Array
from cutwater.flow.event_time import EventTime
from cutwater.flow.partitioning import by_number
from cutwater.flow.watermarks import MAX_WATERMARK, Milliseconds
from cutwater.operators.accumulators import AccumulatorPlan, merge_of_partials, plan_aggregates, plan_partials
from cutwater.operators.keyed_state import KeyedStateOperator
from cutwater.operators.late_records import in_time
from cutwater.operators.operator import Collector, Json, OperatorContext
from cutwater.operators.stored_watermark import restored_watermark, stored_watermark
from cutwater.operators.window_ends import WindowEnds
from cutwater.operators.window_panes import PANE, is_over, with_pane
from cutwater.schema import TIMESTAMP
from cutwater.state.key_index import KeyIndex
from cutwater.state.tables import PaneTable
from cutwater.windows import Windows

WINDOW_START, WINDOW_END = "window_start", "window_end"
LATE = "late"
TABLE = "windows"
PARTIAL, RAW = 0, 1
"""The ports: combined rows that are in time for sure, and records that may be late."""


class WindowAggregate(KeyedStateOperator):
    """One row for each key of a window when its time is over. What time is, the subclasses say."""

    kind_of_time: str

    def __init__(self, keys: Sequence[str], results: Mapping[str, AggregateSpec], ends: WindowEnds) -> None:
        self._keys = tuple(keys)
        self.results = dict(results)
        self._ends = ends
        self._windows = ends.windows
        self.where = "window"

    def describe(self) -> str:
        """What its state was gathered by."""
        return f"window({self._windows}, time={self.kind_of_time!r})"

    def _bind(self, plan: AccumulatorPlan) -> pa.Schema:
        """``plan`` is that of the partial rows, by key and pane."""
        self._plan = plan
        self._schema = windowed_schema(plan, self._keys)
        return self._schema

    def open(self, ctx: OperatorContext) -> None:
        self.where = f"window {ctx.name!r} ({ctx.uid})"
        self._open_store(ctx)
        keys = pa.schema([self._plan.key_schema.field(name) for name in self._keys])
        columns = [(each.column, merge_of_partials(each.merge)) for each in self._plan.accumulators]
        self._table: PaneTable = self.store.panes(TABLE, keys, WINDOW_START, columns)
        self._ends.reached = restored_watermark(ctx)
        for pane in self._table.panes():
            self._ends.expect(pane)

    def _tell_until(self, time: Milliseconds, out: Collector) -> Iterator[None]:
        for end in self._ends.due(time):
            for batch in self._table.read(self._windows.panes_of_window(end)):
                out.emit(self._told(batch, end))
                yield
        for pane in self._ends.reach(time, self._table.panes()):
            self._table.drop(pane)

    def _told(self, partial: pa.RecordBatch, end: Milliseconds) -> pa.RecordBatch:
        """The rows of one window as the user sees them."""
        width = len(self._keys)
        keys = [column.cast(field.type) for column, field in zip(partial.columns, list(self._schema)[:width])]  # noqa: B905 (the first ones)
        times = [moments(time, partial.num_rows) for time in (end - self._windows.size, end)]
        results = self._plan.results_of(partial.columns[width:])
        return pa.RecordBatch.from_arrays([*keys, *times, *results], schema=self._schema)

    def _inline(self) -> Json:
        return stored_watermark(self._ends.reached)


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
    ) -> None:
        super().__init__(keys, results, WindowEnds(windows, lateness))
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
        if port == RAW:
            batch = self._in_time(batch, out)
        again: dict[Milliseconds, list[pa.RecordBatch]] = {}
        for pane, part in by_number(batch.drop_columns([PANE]), batch.column(PANE).to_numpy()):
            self._table.merge(pane, part)
            for end in self._ends.expect(pane):
                again.setdefault(end, []).append(part)
        for end in sorted(again):
            self._tell_again(end, again[end], out)

    def _in_time(self, batch: pa.RecordBatch, out: Collector) -> pa.RecordBatch:
        """The records that are not late, as partial rows."""
        panes = self._windows.panes_of_times(self._time.of(batch, self.where))
        late = is_over(self._windows, self._ends.lateness, panes, self._ends.reached)
        found = in_time(batch, panes, late, lambda rows: out.emit_side(LATE, rows))
        return self._raw_plan.partial_rows(with_pane(*found))

    def _tell_again(self, end: Milliseconds, changed: Sequence[pa.RecordBatch], out: Collector) -> None:
        """The keys of ``changed`` only."""
        width = list(range(len(self._keys)))
        index = KeyIndex(changed[0].select(width).schema)
        for batch in changed:
            index.locate(batch.select(width).columns, batch.num_rows)
        known = len(index)
        for batch in self._table.read(self._windows.panes_of_window(end)):
            rows = index.locate(batch.select(width).columns, batch.num_rows).rows
            out.emit(self._told(batch.filter(pa.array(rows < known)), end))

    def on_watermark(self, watermark: Milliseconds, out: Collector) -> Iterator[None]:
        yield from self._tell_until(watermark, out)
        out.advance(watermark)


class ProcessingTimeWindows(WindowAggregate):
    """By the clock of the subtask that gathers: a record is in the window in which it arrives, so none is late."""

    kind_of_time = "processing"
    _now: Callable[[], Milliseconds]

    def __init__(self, keys: Sequence[str], results: Mapping[str, AggregateSpec], windows: Windows) -> None:
        super().__init__(keys, results, WindowEnds(windows))

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        partial = inputs[0]
        with_pane = partial.insert(len(self._keys), pa.field(PANE, pa.int64()))
        return self._bind(plan_partials(with_pane, (*self._keys, PANE), self.results))

    def open(self, ctx: OperatorContext) -> None:
        super().open(ctx)
        self._now = ctx.now

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        # A clock that was set back does not open windows that were told.
        now = max(self._now(), self._ends.reached + 1)
        pane = int(self._windows.panes_of_times(np.array([now]))[0])
        self._table.merge(pane, batch)
        self._ends.expect(pane)

    def next_timer(self) -> Milliseconds | None:
        return self._ends.first()

    def on_processing_time(self, now: Milliseconds, out: Collector) -> Iterator[None]:
        yield from self._tell_until(now - 1, out)

    def end_of_input(self, out: Collector, *, drain: bool) -> None:
        """The windows that are open when all input has ended are told as they are."""
        if drain:
            for _ in self._tell_until(MAX_WATERMARK, out):
                pass


def windowed_schema(plan: AccumulatorPlan, keys: Sequence[str]) -> pa.Schema:
    """Key columns, the window's two ends, results."""
    refuse_taken([*keys, *(result.name for result in plan.results)])
    return pa.schema(
        [
            *(plan.key_schema.field(name) for name in keys),
            pa.field(WINDOW_START, TIMESTAMP, nullable=False),
            pa.field(WINDOW_END, TIMESTAMP, nullable=False),
            *(pa.field(result.name, result.type) for result in plan.results),
        ]
    )


def refuse_taken(names: Sequence[str]) -> None:
    for name in (WINDOW_START, WINDOW_END):
        if name in names:
            raise SchemaError(f"window: {name!r} is a column of every window's result; choose another name.")


def moments(time: Milliseconds, rows: int) -> Array:
    """The same timestamp in all rows."""
    return pa.array(np.full(rows, time * 1000, np.int64)).cast(TIMESTAMP)
