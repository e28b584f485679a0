"""What windows that are kept by key gather: accumulators, the reduced row, or the rows themselves for a function of the user."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from cutwater.aggregates import Aggregation, described
from cutwater.flow.arrow import Array
from cutwater.flow.event_time import Times
from cutwater.flow.watermarks import Milliseconds
from cutwater.functions import WindowProcess
from cutwater.operators.accumulators import merge_of_partials, plan_aggregates
from cutwater.operators.operator import Collector, OperatorContext
from cutwater.operators.process import ContextFunction, FunctionInput
from cutwater.operators.value_parts import Own, value_parts
from cutwater.operators.window_calls import processed, reduced
from cutwater.operators.window_content import KeyWindow, Told, WindowContent
from cutwater.rows import Row, batch_of, row_type, rows_of, values_of
from cutwater.schema import SchemaLike
from cutwater.state.encoded_keys import plain
from cutwater.state.memory_aggregates import MemoryAggregateTable
from cutwater.state.merging import merger
from cutwater.state.object_column import to_arrow
from cutwater.state.place import Place
from cutwater.state.value_types import handing_out

_FRAGMENT = pa.schema([("fragment", pa.int64())])


class Accumulated(WindowContent):
    """``agg``: key columns, the window's two ends, results. The content is a tuple: what is kept in columns elsewhere (one value
    for each accumulator), then one value for each part."""

    merges = True

    def __init__(self, results: Mapping[str, Aggregation]) -> None:
        self.results_by_name = dict(results)
        self.where = "agg"

    def describe(self) -> str:
        return f"agg({described(self.results_by_name)})"

    def bind(self, schema: pa.Schema, keys: Sequence[str]) -> pa.Schema:
        self._plan = plan_aggregates(schema, keys, self.results_by_name)
        self._mergers = [merger(merge_of_partials(each.merge), each.column) for each in self._plan.accumulators]
        self._parts = value_parts(self.results_by_name, schema)
        self._calls_functions = any(isinstance(part, Own) for part in self._parts)
        fields = {field.name: field for part in self._parts for field in part.results}
        fields |= {result.name: pa.field(result.name, result.type) for result in self._plan.results}
        self._schema = pa.schema([*self._plan.key_schema, *(fields[name] for name in self.results_by_name)])
        return self._schema

    @property
    def where_ends_stand(self) -> int:
        return len(self._plan.keys)

    @property
    def stored_type(self) -> pa.DataType:
        columns = [column.field for column in self._plan.columns]
        return pa.struct([*columns, *(pa.field(part.name, part.kept) for part in self._parts)])

    def open(self, ctx: OperatorContext) -> None:
        self._uid = ctx.uid
        self.where = f"agg {ctx.name!r} ({ctx.uid})"
        for part in self._parts:
            part.open(ctx.uid, self.where)

    def of_fragments(self, ordered: pa.RecordBatch, fragments: Times, count: int) -> list[Any]:
        edges = _edges(fragments)
        columns = self._accumulators_of(ordered, fragments, count) if self._plan.accumulators else []
        values = [part.of_fragments(ordered, edges) for part in self._parts]
        return list(zip(*columns, *values, strict=True))

    def _accumulators_of(self, ordered: pa.RecordBatch, fragments: Times, count: int) -> list[list[Any]]:
        table = MemoryAggregateTable(self._uid, "fragments", _FRAGMENT, self._plan.columns, 1)
        touched = table.locate(pa.RecordBatch.from_arrays([pa.array(fragments)], schema=_FRAGMENT))
        table.update(touched, self._plan.updates(ordered))
        return [values_of(column) for column in table.read(np.arange(count, dtype=np.int32))]

    def added(self, before: Any, fragment: Any) -> Any:
        return fragment if before is None else self.merged(before, fragment)

    def merged(self, before: Any, after: Any) -> Any:
        width = len(self._mergers)
        accumulators = [
            new if old is None else old if new is None else merge(old, new)
            for merge, old, new in zip(self._mergers, before[:width], after[:width], strict=True)
        ]
        values = (
            part.merged(old, new) for part, old, new in zip(self._parts, before[width:], after[width:], strict=True)
        )
        return (*accumulators, *values)

    def results(self, told: Iterable[Told], out: Collector) -> tuple[pa.RecordBatch, list[KeyWindow]]:
        keys, windows, finished = [], [], []
        for key, window in told:
            keys.append(key)
            windows.append(window)
            finished.append(self._finished(window.content) if self._calls_functions else window.content)
        columns = [keys] if len(self._plan.keys) == 1 else [list(column) for column in zip(*keys, strict=True)]
        arrays = [
            pa.array(values, plain(field.type)).cast(field.type)
            for values, field in zip(columns, self._plan.key_schema, strict=True)
        ]
        results = self._results_of([list(values) for values in zip(*finished, strict=True)])
        arrays += [results[name] for name in self.results_by_name]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), windows

    def _finished(self, content: Any) -> Any:
        width = len(self._mergers)
        values = (part.finished(value) for part, value in zip(self._parts, content[width:], strict=True))
        return (*content[:width], *values)

    def _results_of(self, contents: Sequence[list[Any]]) -> dict[str, Array]:
        width = len(self._mergers)
        accumulated = [
            to_arrow(column, values) for column, values in zip(self._plan.columns, contents[:width], strict=True)
        ]
        results = {
            result.name: array
            for result, array in zip(self._plan.results, self._plan.results_of(accumulated), strict=True)
        }
        for part, values in zip(self._parts, contents[width:], strict=True):
            results |= zip(part.results.names, part.outcome(values), strict=True)
        return results


def _edges(fragments: Times) -> list[int]:
    """Where each fragment begins, and where the last one ends."""
    return [*np.flatnonzero(np.diff(fragments, prepend=-1)).tolist(), len(fragments)]


class Reduced(WindowContent):
    """``reduce``: the reduced row, with the window's two ends behind it. Rows are reduced as they come."""

    merges = False

    def __init__(self, fn: Callable[[Row, Row], Any]) -> None:
        self._fn = fn
        self.where = "reduce"

    def describe(self) -> str:
        return "reduce"

    def bind(self, schema: pa.Schema, keys: Sequence[str]) -> pa.Schema:
        self._rows = schema
        return schema

    @property
    def where_ends_stand(self) -> int:
        return len(self._rows)

    @property
    def stored_type(self) -> pa.DataType:
        return pa.struct(list(self._rows))

    def open(self, ctx: OperatorContext) -> None:
        self.where = f"reduce {ctx.name!r} ({ctx.uid})"
        self._place = Place(ctx.uid, "'reduced'", self.stored_type)
        self._copied = handing_out(self.stored_type)

    def of_fragments(self, ordered: pa.RecordBatch, fragments: Times, count: int) -> list[Any]:
        rows = rows_of(ordered)
        return [rows[start:stop] for start, stop in pairwise(_edges(fragments))]

    def added(self, before: Any, fragment: Any) -> Any:
        return self._reduced(fragment if before is None else [self._handed_out(before), *fragment])

    def merged(self, before: Any, after: Any) -> Any:
        return self._reduced([self._handed_out(before), self._handed_out(after)])

    def _reduced(self, rows: Sequence[Row]) -> Row:
        if len(rows) == 1:
            return rows[0]
        # What is kept is what a restore would give, and the function has no hand on it.
        admitted: Row = self._place.admitted(reduced(self._fn, rows, self._rows, self.where))
        return admitted

    def _handed_out(self, row: Row) -> Row:
        copied = row if self._copied is None else self._copied(row)
        kind = row_type(tuple(self._rows.names))
        return copied if type(copied) is kind else tuple.__new__(kind, copied)

    def results(self, told: Iterable[Told], out: Collector) -> tuple[pa.RecordBatch, list[KeyWindow]]:
        windows = [each.window for each in told]
        return batch_of([window.content for window in windows], self._rows, self.where), windows


class Processed(WindowContent):
    """``process``: the rows, in the order in which they came (of one batch: by time), and the window's two ends behind the
    results."""

    merges = True

    def __init__(self, fn: WindowProcess, schema: SchemaLike) -> None:
        self.where = "window"
        self._function = ContextFunction(fn, schema, [FunctionInput("process")])
        self.by_clock = self._function.by_clock
        self.fn = fn

    def bind(self, schema: pa.Schema, keys: Sequence[str]) -> pa.Schema:
        self._keys = tuple(keys)
        self._rows, self._results = schema, self._function.schema
        return self._results

    def describe(self) -> str:
        return "of rows"

    @property
    def where_ends_stand(self) -> int:
        return len(self._results)

    @property
    def stored_type(self) -> pa.DataType:
        return pa.list_(pa.struct(list(self._rows)))

    def side_schemas(self) -> Mapping[str, pa.Schema]:
        return self._function.side_schemas()

    def open(self, ctx: OperatorContext) -> None:
        self._function.open(ctx)
        self.where = self._function.where

    def of_fragments(self, ordered: pa.RecordBatch, fragments: Times, count: int) -> list[Any]:
        rows = rows_of(ordered)
        return [rows[start:stop] for start, stop in pairwise(_edges(fragments))]

    def added(self, before: Any, fragment: Any) -> Any:
        return fragment if before is None else self.merged(before, fragment)

    def merged(self, before: Any, after: Any) -> Any:
        return [*before, *after]

    def _rows_of(self, window: KeyWindow) -> list[Row]:
        """As the function knows them, also behind a restore."""
        kind = row_type(tuple(self._rows.names))
        return [row if type(row) is kind else tuple.__new__(kind, row) for row in window.content]

    def results(self, told: Iterable[Told], out: Collector) -> tuple[pa.RecordBatch, list[KeyWindow]]:
        ctx = self._function.context
        results: list[Any] = []
        windows: list[KeyWindow] = []
        for key, window in told:
            ctx.key = key if len(self._keys) == 1 else tuple.__new__(row_type(self._keys), key)
            ctx.window_start, ctx.window_end = window.start, window.end
            results.extend(processed(self.fn, self._rows_of(window), ctx, self._results, self.where))
            windows += [window] * (len(results) - len(windows))
        self._function.emit_sides(out)
        return batch_of(results, self._results, self.where), windows

    def know(self, watermark: Milliseconds) -> None:
        self._function.know(watermark)

    def inline_with(self, inline: Mapping[str, Any]) -> Any:
        return self._function.inline_with(inline)

    def close(self) -> None:
        self._function.close()
