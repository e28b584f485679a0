"""``k.window(...).reduce(fn)`` and ``.process(fn, schema)``: a function of the user gets the rows of a key and window."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cutwater.flow.event_time import EventTime, Times
from cutwater.flow.partitioning import by_number
from cutwater.flow.watermarks import MAX_WATERMARK, Milliseconds
from cutwater.functions import WindowProcess
from cutwater.operators.keyed_state import KeyedStateOperator, key_schema, keys_of
from cutwater.operators.late_records import in_time
from cutwater.operators.operator import Collector, Json, OperatorContext
from cutwater.operators.process import ContextFunction, FunctionInput
from cutwater.operators.stored_watermark import restored_watermark, stored_watermark
from cutwater.operators.window_aggregate import LATE, WINDOW_END, WINDOW_START, moments, refuse_taken
from cutwater.operators.window_calls import processed, reduced, with_own_sides
from cutwater.operators.window_ends import WindowEnds
from cutwater.operators.window_panes import is_over
from cutwater.rows import Row, batch_of, rows_of
from cutwater.schema import TIMESTAMP, SchemaLike
from cutwater.state.key_index import KeyIndex
from cutwater.state.tables import BucketTable
from cutwater.windows import Windows

TABLE = "windows"

KeyRows = Iterator[tuple[Any, list[Row]]]


class WindowRows(KeyedStateOperator):
    """Keeps the rows by pane and hands those of each key over when the window is told, in the order in which they came.

    ``time`` None: by the clock. Rows that change a window which was told already, within the allowed lateness, let it be told
    again for their keys.
    """

    def __init__(self, keys: Sequence[str], windows: Windows, time: EventTime | None, lateness: Milliseconds) -> None:
        self._keys = tuple(keys)
        self._time = time
        self._ends = WindowEnds(windows, lateness)
        self.where = "window"

    def describe(self) -> str:
        kind = "processing" if self._time is None else "event"
        return f"window({self._ends.windows}, time={kind!r}) of rows"

    def _bind(self, rows: pa.Schema, results: pa.Schema) -> pa.Schema:
        self._rows = rows
        self._key_schema = key_schema(rows, self._keys, "window")
        if self._time is not None:
            self._time.check(rows, "window")
        refuse_taken(results.names)
        self._results = results
        ends = [pa.field(name, TIMESTAMP, nullable=False) for name in (WINDOW_START, WINDOW_END)]
        self._schema = pa.schema([*results, *ends])
        return self._schema

    def side_schemas(self) -> Mapping[str, pa.Schema]:
        return {} if self._time is None else {LATE: self._rows}

    def open(self, ctx: OperatorContext) -> None:
        self._now = ctx.now
        self._open_store(ctx)
        self._table: BucketTable = self.store.buckets(TABLE, self._rows, self._keys, WINDOW_START)
        self._ends.reached = restored_watermark(ctx)
        for pane in self._table.buckets():
            self._ends.expect(pane)

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        batch, panes = self._in_time(batch, out)
        again: dict[Milliseconds, list[pa.RecordBatch]] = {}
        for pane, part in by_number(batch, panes):
            self._table.add(pane, part)
            for end in self._ends.expect(pane):
                again.setdefault(end, []).append(part)
        for end in sorted(again):
            self._tell(end, out, again[end])

    def _in_time(self, batch: pa.RecordBatch, out: Collector) -> tuple[pa.RecordBatch, Times]:
        windows = self._ends.windows
        if self._time is None:
            # A clock that was set back does not open windows that were told.
            now = max(self._now(), self._ends.reached + 1)
            return batch, windows.panes_of_times(np.full(batch.num_rows, now))
        panes = windows.panes_of_times(self._time.of(batch, self.where))
        late = is_over(windows, self._ends.lateness, panes, self._ends.reached)
        return in_time(batch, panes, late, lambda rows: out.emit_side(LATE, rows))

    def on_watermark(self, watermark: Milliseconds, out: Collector) -> Iterator[None]:
        if self._time is not None:
            yield from self._tell_until(watermark, out)
        out.advance(watermark)

    def next_timer(self) -> Milliseconds | None:
        return self._ends.first() if self._time is None else None

    def on_processing_time(self, now: Milliseconds, out: Collector) -> Iterator[None]:
        if self._time is None:
            yield from self._tell_until(now - 1, out)

    def end_of_input(self, out: Collector, *, drain: bool) -> None:
        """By the clock too the windows that are open when all input has ended are told, as they are."""
        if drain and self._time is None:
            for _ in self._tell_until(MAX_WATERMARK, out):
                pass

    def _tell_until(self, time: Milliseconds, out: Collector) -> Iterator[None]:
        for end in self._ends.due(time):
            self._tell(end, out)
            yield
        for pane in self._ends.reach(time, self._table.buckets()):
            self._table.drop(pane)

    def _tell(self, end: Milliseconds, out: Collector, changed: Sequence[pa.RecordBatch] = ()) -> None:
        """The window that ends there; with ``changed`` only the keys in it."""
        batches = self._table.read(self._ends.windows.panes_of_window(end))
        results = self._results_of(self._by_key(batches, changed), end, out)
        if results.num_rows:
            columns = results.columns
            columns += [moments(time, results.num_rows) for time in (end - self._ends.windows.size, end)]
            out.emit(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _by_key(self, batches: Sequence[pa.RecordBatch], changed: Sequence[pa.RecordBatch]) -> KeyRows:
        if not batches:
            return
        index = KeyIndex(self._key_schema)
        for batch in changed:
            index.locate(batch.select(list(self._keys)).columns, batch.num_rows)
        whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)  # type: ignore[attr-defined]  # the stubs lack it
        wanted = len(index) if changed else whole.num_rows
        ids = index.locate(whole.select(list(self._keys)).columns, whole.num_rows).rows
        order = np.argsort(ids, kind="stable")
        order = order[ids[order] < wanted]
        ordered = whole.take(order)
        starts = np.flatnonzero(np.diff(ids[order], prepend=-1))
        rows = rows_of(ordered)
        keys = list(keys_of(ordered.take(starts), self._keys))
        for key, start, stop in zip(keys, starts.tolist(), [*starts.tolist()[1:], len(rows)], strict=True):
            yield key, rows[start:stop]

    @abstractmethod
    def _results_of(self, groups: KeyRows, end: Milliseconds, out: Collector) -> pa.RecordBatch: ...

    def _inline(self) -> Json:
        return stored_watermark(self._ends.reached)


class WindowReduce(WindowRows):
    """``fn(reduced, row)`` over the rows of a key: the reduced row, with the window's two ends."""

    def __init__(
        self,
        fn: Callable[[Row, Row], Any],
        keys: Sequence[str],
        windows: Windows,
        time: EventTime | None,
        lateness: Milliseconds,
    ) -> None:
        super().__init__(keys, windows, time, lateness)
        self.fn = fn

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        return self._bind(inputs[0], inputs[0])

    def open(self, ctx: OperatorContext) -> None:
        self.where = f"reduce {ctx.name!r} ({ctx.uid})"
        super().open(ctx)

    def _results_of(self, groups: KeyRows, end: Milliseconds, out: Collector) -> pa.RecordBatch:
        results = [reduced(self.fn, rows, self._results, self.where) for _, rows in groups]
        return batch_of(results, self._results, self.where)


class WindowProcessOperator(WindowRows):
    """``fn.process(rows, ctx)`` for each key: its results, with the window's two ends."""

    def __init__(
        self,
        fn: WindowProcess,
        schema: SchemaLike,
        keys: Sequence[str],
        windows: Windows,
        time: EventTime | None,
        lateness: Milliseconds,
    ) -> None:
        super().__init__(keys, windows, time, lateness)
        self.fn = fn
        self._function = ContextFunction(fn, schema, [FunctionInput("process")])

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        return self._bind(inputs[0], self._function.schema)

    def side_schemas(self) -> Mapping[str, pa.Schema]:
        return with_own_sides(super().side_schemas(), self._function.side_schemas())

    def open(self, ctx: OperatorContext) -> None:
        super().open(ctx)
        self._function.open(ctx)
        self.where = self._function.where

    def on_watermark(self, watermark: Milliseconds, out: Collector) -> Iterator[None]:
        self._function.know(watermark)
        yield from super().on_watermark(watermark, out)

    def _results_of(self, groups: KeyRows, end: Milliseconds, out: Collector) -> pa.RecordBatch:
        ctx = self._function.context
        ctx.window_start, ctx.window_end = end - self._ends.windows.size, end
        results: list[Any] = []
        for ctx.key, rows in groups:
            results.extend(processed(self.fn, rows, ctx, self.where))
        self._function.emit_sides(out)
        return batch_of(results, self._results, self.where)

    def _inline(self) -> Json:
        return self._function.inline_with(super()._inline())

    def close(self) -> None:
        try:
            self._function.close()
        finally:
            super().close()
