"""A function of the user that is called for each row with a context, and may have side outputs."""

from collections.abc import Iterable, Mapping, Sequence
from types import GeneratorType
from typing import Any

import pyarrow as pa

from cutwater.errors import ConfigError
from cutwater.flow.elements import Milliseconds
from cutwater.functions import Function, Metrics, OpenContext, Process, ProcessContext, Timers
from cutwater.operators.operator import Collector, Operator, OperatorContext
from cutwater.operators.user_code import user_error
from cutwater.rows import Row, batch_of, rows_of, shortened
from cutwater.schema import SchemaLike, arrow_schema


class ContextFunction(Operator):
    """What operators around a ``Process`` and a ``KeyedProcess`` share: contexts, results and side outputs."""

    def __init__(self, fn: Function, schema: SchemaLike) -> None:
        self.fn = fn
        self.schema = arrow_schema(schema, "process's schema")
        self.where = f"process {type(fn).__name__}"
        self._side_schemas = {output.name: output.schema for output in fn.side_outputs()}
        self._opened = False

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        return self.schema

    def side_schemas(self) -> Mapping[str, pa.Schema]:
        return self._side_schemas

    def open(self, ctx: OperatorContext) -> None:
        self.where = f"process {ctx.name!r} ({ctx.uid})"
        self._side: dict[str, list[Any]] = {name: [] for name in self._side_schemas}
        opened = OpenContext(ctx.subtask, ctx.parallelism, ctx.attempt, Metrics(ctx.counters))
        self._context = ProcessContext(opened, self._side, ctx.now, Timers(_no_timers))
        self._opened = True
        try:
            self.fn.open(opened)
        except Exception as error:
            raise user_error(error, f"{self.where}, open") from error

    def on_watermark(self, watermark: Milliseconds, out: Collector) -> None:
        self._context.watermark = watermark

    def _emit(self, results: list[Any], out: Collector) -> None:
        if results:
            out.emit(batch_of(results, self.schema, self.where))
        for name, rows in self._side.items():
            if rows:
                out.emit_side(name, batch_of(rows, self._side_schemas[name], f"{self.where}, side output {name!r}"))
                rows.clear()

    def close(self) -> None:
        if self._opened:
            self.fn.close()


def _no_timers(kind: str, timestamp: Milliseconds) -> None:
    if kind == "event":
        raise ConfigError(
            "ctx.timers.event_time: event-time timers come with with_timestamps, which this stream has not"
        )
    raise ConfigError("ctx.timers.processing_time: processing-time timers are not available here")


class ProcessOperator(ContextFunction):
    """``s.process(fn, schema)``."""

    fn: Process

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        process, ctx = self.fn.process, self._context
        results: list[Any] = []
        row: Row | None = None
        try:
            for row in rows_of(batch):
                found = process(row, ctx)
                if type(found) is GeneratorType:
                    results.extend(found)
                elif found is not None:
                    results.extend(several(found))
        except Exception as error:
            raise user_error(error, self.where, row) from error
        self._emit(results, out)


_ONE = (str, bytes, bytearray, dict, Row)


def several(found: Iterable[Any], verb: str = "process") -> Iterable[Any]:
    """What ``verb``'s function gave, unless it is one row where a list of rows is meant: iterating it would tear it apart."""
    if isinstance(found, _ONE):
        raise TypeError(
            f"{verb} returned {shortened(found)}, a single {type(found).__name__}: yield it, or return a list of results"
        )
    return found
