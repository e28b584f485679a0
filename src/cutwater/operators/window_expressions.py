"""``k.window(...).agg(...)`` with lists, distinct values and expressions, in columns: over the rows of each window."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from cutwater.aggregates import AggregateKind, AggregateSpec, Aggregation, described, needs_values
from cutwater.flow.arrow import Array
from cutwater.flow.columns import shown_keys
from cutwater.flow.event_time import EventTime, Times
from cutwater.flow.watermarks import Milliseconds
from cutwater.operators.accumulators import plan_aggregates
from cutwater.operators.frame_aggregates import FrameAggregates
from cutwater.operators.operator import Collector, OperatorContext
from cutwater.operators.value_parts import value_parts
from cutwater.operators.window_results import windowed
from cutwater.operators.window_rows import KeyedRows, WindowRows
from cutwater.state.memory_aggregates import MemoryAggregateTable
from cutwater.windows import Windows

_GROUP = pa.schema([("group", pa.int64())])


class WindowExpressions(WindowRows):
    """Key columns, the window's columns, results. What has accumulators is computed by them, as everywhere; the rest by Polars."""

    def __init__(
        self,
        results: Mapping[str, Aggregation],
        keys: Sequence[str],
        windows: Windows,
        time: EventTime | None,
        lateness: Milliseconds,
        early: Milliseconds | None,
    ) -> None:
        super().__init__(keys, windows, time, lateness, early)
        self._results = dict(results)

    def describe(self) -> str:
        return f"{self._describe()}.agg({described(self._results)})"

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        rows = inputs[0]
        self._know_rows(rows)
        self._plan = plan_aggregates(rows, self._keys, self._results)
        # The same checks and types as where values are kept by key.
        fields = [field for part in value_parts(self._results, rows) for field in part.results]
        self._frames = FrameAggregates(
            {name: _expression(each) for name, each in self._results.items() if needs_values(each)},
            rows,
            {field.name: field.type for field in fields},
        )
        by_name = {field.name: field for field in self._frames.results}
        by_name |= {result.name: pa.field(result.name, result.type) for result in self._plan.results}
        self._plain = pa.schema([*self._key_schema, *(by_name[name] for name in self._results)])
        self._schema = windowed(self._plain, self.where_ends_stand, marked=self._every is not None)
        return self._schema

    @property
    def where_ends_stand(self) -> int:
        return len(self._keys)

    def open(self, ctx: OperatorContext) -> None:
        self.where = f"window {ctx.name!r} ({ctx.uid})"
        self._uid = ctx.uid
        super().open(ctx)

    def _results_of(self, part: KeyedRows, ends: Times, out: Collector) -> tuple[pa.RecordBatch, Times]:
        groups = part.groups
        found = dict(zip(self._frames.results.names, self._frames.compute(part.rows, groups, self.where), strict=True))
        if self._plan.accumulators:
            results = self._plan.results_of(self._accumulated(part.rows, groups))
            found |= zip((result.name for result in self._plan.results), results, strict=True)
        keys = map(shown_keys, part.first.select(list(self._keys)).columns)
        return pa.RecordBatch.from_arrays([*keys, *(found[name] for name in self._results)], schema=self._plain), ends

    def _accumulated(self, rows: pa.RecordBatch, groups: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> list[Array]:
        table = MemoryAggregateTable(self._uid, "groups", _GROUP, self._plan.columns, 1)
        touched = table.locate(pa.RecordBatch.from_arrays([pa.array(groups)], schema=_GROUP))
        table.update(touched, self._plan.updates(rows))
        return table.read(touched.unique)


def _expression(aggregation: Aggregation) -> pl.Expr:
    match aggregation:
        case AggregateSpec(kind=kind, column=str() as column):
            values = pl.col(column).drop_nulls()
            return values if kind is AggregateKind.COLLECT_LIST else values.n_unique()
        case pl.Expr():
            return aggregation
        case _:
            raise TypeError(f"{aggregation!r} is no expression")
