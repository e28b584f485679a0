"""``k.window(...).process(fn, schema)``: a function of the user gets the rows of a key and window."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from cutwater.flow.event_time import EventTime, Times
from cutwater.flow.watermarks import Milliseconds
from cutwater.functions import WindowProcess
from cutwater.operators.keyed_state import keys_of
from cutwater.operators.operator import Collector, Json, OperatorContext
from cutwater.operators.process import ContextFunction, FunctionInput
from cutwater.operators.window_calls import processed, with_own_sides
from cutwater.operators.window_results import windowed
from cutwater.operators.window_rows import KeyedRows, WindowRows
from cutwater.rows import batch_of, rows_of
from cutwater.schema import SchemaLike
from cutwater.windows import Windows


class WindowProcessOperator(WindowRows):
    """``fn.process(rows, ctx)`` for each key: its results, with the window's columns behind them."""

    def __init__(
        self,
        fn: WindowProcess,
        schema: SchemaLike,
        keys: Sequence[str],
        windows: Windows,
        time: EventTime | None,
        lateness: Milliseconds,
        early: Milliseconds | None,
    ) -> None:
        super().__init__(keys, windows, time, lateness, early)
        self.fn = fn
        self._function = ContextFunction(fn, schema, [FunctionInput("process")])

    @property
    def by_clock(self) -> bool:
        return super().by_clock or self._function.by_clock

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        self._know_rows(inputs[0])
        self._schema = windowed(self._function.schema, self.where_ends_stand, marked=self._every is not None)
        return self._schema

    @property
    def where_ends_stand(self) -> int:
        return len(self._function.schema)

    def side_schemas(self) -> Mapping[str, pa.Schema]:
        return with_own_sides(super().side_schemas(), self._function.side_schemas())

    def open(self, ctx: OperatorContext) -> None:
        super().open(ctx)
        self._function.open(ctx)
        self.where = self._function.where

    def on_watermark(self, watermark: Milliseconds, out: Collector) -> Iterator[None]:
        self._function.know(watermark)
        yield from super().on_watermark(watermark, out)

    def _results_of(self, part: KeyedRows, ends: Times, out: Collector) -> tuple[pa.RecordBatch, Times]:
        ctx = self._function.context
        size = self._ends.windows.size
        rows = rows_of(part.rows)
        results: list[Any] = []
        counts: list[int] = []
        keys = keys_of(part.first, self._keys)
        for ctx.key, end, (start, stop) in zip(keys, ends.tolist(), pairwise(part.edges.tolist()), strict=True):
            ctx.window_start, ctx.window_end = end - size, end
            before = len(results)
            results.extend(processed(self.fn, rows[start:stop], ctx, self._function.schema, self.where))
            counts.append(len(results) - before)
        self._function.emit_sides(out)
        return batch_of(results, self._function.schema, self.where), np.repeat(ends, counts)

    def _inline(self) -> Json:
        return self._function.inline_with(super()._inline())

    def close(self) -> None:
        try:
            self._function.close()
        finally:
            super().close()
