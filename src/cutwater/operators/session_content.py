"""What sessions gather: accumulators, or the rows themselves for a function of the user."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from cutwater.aggregates import AggregateSpec
from cutwater.flow.event_time import Times
from cutwater.flow.watermarks import Milliseconds
from cutwater.functions import WindowProcess
from cutwater.operators.accumulators import merge_of_partials, plan_aggregates
from cutwater.operators.operator import Collector, OperatorContext
from cutwater.operators.process import ContextFunction, FunctionInput
from cutwater.operators.session_windows import Session, SessionContent, Told
from cutwater.operators.window_calls import processed, reduced
from cutwater.rows import Row, batch_of, row_type, rows_of
from cutwater.schema import SchemaLike
from cutwater.state.encoded_keys import plain
from cutwater.state.memory_aggregates import MemoryAggregateTable, merged_value, to_arrow

_FRAGMENT = pa.schema([("fragment", pa.int64())])


class Accumulated(SessionContent):
    """``agg``: key columns, the session's two ends, results."""

    def __init__(self, results: Mapping[str, AggregateSpec]) -> None:
        self.results_by_name = dict(results)

    def describe(self) -> str:
        return f"agg({', '.join(sorted(f'{name}={spec.kind}' for name, spec in self.results_by_name.items()))})"

    def bind(self, schema: pa.Schema, keys: Sequence[str]) -> pa.Schema:
        self._plan = plan_aggregates(schema, keys, self.results_by_name)
        self._merges = [merge_of_partials(each.merge) for each in self._plan.accumulators]
        return self._plan.output_schema

    @property
    def where_ends_stand(self) -> int:
        return len(self._plan.keys)

    @property
    def stored_type(self) -> pa.DataType:
        return pa.struct([column.field for column in self._plan.columns])

    def open(self, ctx: OperatorContext) -> None:
        self._uid = ctx.uid

    def of_fragments(self, ordered: pa.RecordBatch, fragments: Times, count: int) -> list[Any]:
        table = MemoryAggregateTable(self._uid, "fragments", _FRAGMENT, self._plan.columns, 1)
        touched = table.locate(pa.RecordBatch.from_arrays([pa.array(fragments)], schema=_FRAGMENT))
        table.update(touched, self._plan.updates(ordered))
        columns = table.read(np.arange(count, dtype=np.int32))
        return list(zip(*(column.to_pylist() for column in columns), strict=True))

    def merged(self, before: Any, after: Any) -> Any:
        return tuple(
            new if old is None else old if new is None else merged_value(merge, old, new)
            for merge, old, new in zip(self._merges, before, after, strict=True)
        )

    def results(self, told: Sequence[Told], out: Collector) -> tuple[pa.RecordBatch, list[int]]:
        keys = [each.key for each in told]
        columns = [keys] if len(self._plan.keys) == 1 else [list(column) for column in zip(*keys, strict=True)]
        arrays = [
            pa.array(values, plain(field.type)).cast(field.type)
            for values, field in zip(columns, self._plan.key_schema, strict=True)
        ]
        contents = zip(*(each.session.content for each in told), strict=True)
        accumulated = [
            to_arrow(column, list(values)) for column, values in zip(self._plan.columns, contents, strict=True)
        ]
        return self._plan.output(arrays, accumulated), list(range(len(told)))


class _Gathered(SessionContent):
    """The rows, in the order in which they came (of one batch: by time), and the session's two ends behind the results."""

    def __init__(self) -> None:
        self.where = "window"

    def describe(self) -> str:
        return "of rows"

    def _bind(self, rows: pa.Schema, results: pa.Schema) -> pa.Schema:
        self._rows, self._results = rows, results
        return results

    @property
    def where_ends_stand(self) -> int:
        return len(self._results)

    @property
    def stored_type(self) -> pa.DataType:
        return pa.list_(pa.struct(list(self._rows)))

    def of_fragments(self, ordered: pa.RecordBatch, fragments: Times, count: int) -> list[Any]:
        rows = rows_of(ordered)
        edges = [*np.flatnonzero(np.diff(fragments, prepend=-1)).tolist(), len(rows)]
        return [rows[start:stop] for start, stop in pairwise(edges)]

    def merged(self, before: Any, after: Any) -> Any:
        return [*before, *after]

    def _rows_of(self, session: Session) -> list[Row]:
        """As the function knows them, also behind a restore."""
        kind = row_type(tuple(self._rows.names))
        return [row if type(row) is kind else tuple.__new__(kind, row) for row in session.content]


class Reduced(_Gathered):
    def __init__(self, fn: Callable[[Row, Row], Any]) -> None:
        super().__init__()
        self._fn = fn

    def bind(self, schema: pa.Schema, keys: Sequence[str]) -> pa.Schema:
        return self._bind(schema, schema)

    def open(self, ctx: OperatorContext) -> None:
        self.where = f"reduce {ctx.name!r} ({ctx.uid})"

    def results(self, told: Sequence[Told], out: Collector) -> tuple[pa.RecordBatch, list[int]]:
        results = [reduced(self._fn, self._rows_of(each.session), self._results, self.where) for each in told]
        return batch_of(results, self._results, self.where), list(range(len(told)))


class Processed(_Gathered):
    def __init__(self, fn: WindowProcess, schema: SchemaLike) -> None:
        super().__init__()
        self._function = ContextFunction(fn, schema, [FunctionInput("process")])
        self._fn = fn

    def bind(self, schema: pa.Schema, keys: Sequence[str]) -> pa.Schema:
        self._keys = tuple(keys)
        return self._bind(schema, self._function.schema)

    def side_schemas(self) -> Mapping[str, pa.Schema]:
        return self._function.side_schemas()

    def open(self, ctx: OperatorContext) -> None:
        self._function.open(ctx)
        self.where = self._function.where

    def results(self, told: Sequence[Told], out: Collector) -> tuple[pa.RecordBatch, list[int]]:
        ctx = self._function.context
        results: list[Any] = []
        numbers: list[int] = []
        for number, (key, session) in enumerate(told):
            ctx.key = key if len(self._keys) == 1 else tuple.__new__(row_type(self._keys), key)
            ctx.window_start, ctx.window_end = session.start, session.end
            results.extend(processed(self._fn, self._rows_of(session), ctx, self.where))
            numbers += [number] * (len(results) - len(numbers))
        self._function.emit_sides(out)
        return batch_of(results, self._results, self.where), numbers

    def know(self, watermark: Milliseconds) -> None:
        self._function.know(watermark)

    def inline_with(self, inline: Mapping[str, Any]) -> Any:
        return self._function.inline_with(inline)

    def close(self) -> None:
        self._function.close()
