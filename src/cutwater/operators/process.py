"""A function of the user that is called for each row with a context, and may have side outputs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from types import GeneratorType
from typing import Any

import pyarrow as pa

from cutwater.errors import ConfigError
from cutwater.flow.event_time import EventTime
from cutwater.flow.ids import CheckpointId
from cutwater.flow.watermarks import MIN_WATERMARK, Milliseconds
from cutwater.functions import Function, Metrics, OpenContext, ProcessContext, Timers, WindowProcess
from cutwater.operators.clock_readers import reads_clock
from cutwater.operators.operator import Collector, Json, Operator, OperatorContext, OperatorSnapshot
from cutwater.operators.stored_watermark import restored_watermark, stored_watermark
from cutwater.operators.user_code import user_error
from cutwater.rows import Row, RowsInTurn, batch_of, shortened
from cutwater.schema import SchemaLike, arrow_schema
from cutwater.state.operator_states import BoundOperatorStates

BROADCAST = "process_broadcast"


@dataclass(frozen=True, slots=True)
class FunctionInput:
    """One input of a user's function: which method gets its rows, and what is known of them."""

    method: str
    time: EventTime | None = None
    """When records happened, when the stream knows it (``with_timestamps``)."""
    keys: tuple[str, ...] = ()


class ContextFunction(Operator):
    """What operators around functions with a context share: contexts, results and side outputs."""

    def __init__(self, fn: Function, schema: SchemaLike, inputs: Sequence[FunctionInput]) -> None:
        self.fn = fn
        self.schema = arrow_schema(schema, "process's schema")
        self.inputs = tuple(inputs)
        self.input_ports = len(self.inputs)
        self.where = f"process {type(fn).__name__}"
        self._side_schemas = {output.name: output.schema for output in fn.side_outputs()}
        self._opened = False

    @property
    def by_clock(self) -> bool:
        return reads_clock(self.fn)

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        for own, schema in zip(self.inputs, inputs, strict=True):
            if own.time is not None:
                own.time.check(schema, "process")
        return self.schema

    def side_schemas(self) -> Mapping[str, pa.Schema]:
        return self._side_schemas

    def open(self, ctx: OperatorContext) -> None:
        self.where = f"process {ctx.name!r} ({ctx.uid})"
        self._side: dict[str, list[Any]] = {name: [] for name in self._side_schemas}
        opened = OpenContext(ctx.subtask, ctx.parallelism, ctx.attempt, Metrics(ctx.counters))
        self.context = ProcessContext(opened, self._side, ctx.now, Timers(self._refuse_timer))
        self.know(restored_watermark(ctx))
        self._turn = ctx.turn
        self._operator_states = BoundOperatorStates(
            self.fn, ctx.uid, ctx.restored.inline if ctx.restored is not None else ()
        )
        self._opened = True
        try:
            self.fn.open(opened)
        except Exception as error:
            raise user_error(error, f"{self.where}, open") from error

    def on_watermark(self, watermark: Milliseconds, out: Collector) -> Iterator[None]:
        self.know(watermark)
        out.advance(watermark)
        yield from ()

    def know(self, watermark: Milliseconds) -> None:
        self.context.watermark = None if watermark == MIN_WATERMARK else watermark

    def _times_of(self, batch: pa.RecordBatch, port: int) -> Iterable[Milliseconds | None]:
        time = self.inputs[port].time
        return repeat(None) if time is None else time.of(batch, self.where).tolist()

    def _emit(self, results: list[Any], out: Collector) -> None:
        if results:
            out.emit(batch_of(results, self.schema, self.where))
        self.emit_sides(out)

    def emit_sides(self, out: Collector) -> None:
        for name, rows in self._side.items():
            if rows:
                out.emit_side(name, batch_of(rows, self._side_schemas[name], f"{self.where}, side output {name!r}"))
                rows.clear()

    def snapshot(self, checkpoint: CheckpointId) -> OperatorSnapshot | None:
        inline = self.inline_with(self._stored_time())
        return OperatorSnapshot(inline=inline) if inline else None

    def _stored_time(self) -> Mapping[str, Json]:
        return {} if self.context.watermark is None else stored_watermark(self.context.watermark)

    def inline_with(self, inline: Mapping[str, Json]) -> Json:
        """``inline`` and the function's operator states as they are now, for a snapshot."""
        states = self._operator_states.frozen()
        return inline if states is None else lambda: {**inline, **states()}

    def _process_without_key(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        process, ctx = getattr(self.fn, self.inputs[port].method), self.context
        results: list[Any] = []
        row: Row | None = None
        try:
            with self._writing(port):
                rows = self._turn.of(RowsInTurn(batch).rows, batch.num_rows)
                for ctx.timestamp, row in zip(self._times_of(batch, port), rows):  # noqa: B905 (one may be endless)
                    found = process(row, ctx)
                    if type(found) is GeneratorType:
                        results.extend(found)
                    elif found is not None:
                        results.extend(several(found, self.schema, self.inputs[port].method))
        except Exception as error:
            raise user_error(error, self.where, row) from error
        self._emit(results, out)

    @contextmanager
    def _writing(self, port: int) -> Iterator[None]:
        """What is written to broadcast state must be the same in every subtask: only what every one gets may write it."""
        handles = self._operator_states.broadcast if self.inputs[port].method == BROADCAST else []
        for handle in handles:
            handle.writable = True
        try:
            yield
        finally:
            for handle in handles:
                handle.writable = False

    def _refuse_timer(self, kind: str, time: Milliseconds) -> None:
        """Subclasses that have keys set it."""
        why = (
            "a function of windows has no timers, it is called when its window ends; use a cw.KeyedProcess behind key_by instead"
            if isinstance(self.fn, WindowProcess)
            else "a timer belongs to a key, and there is no key here; write key_by before, and use a cw.KeyedProcess"
        )
        raise ConfigError(f"ctx.timers.{kind}_time: {why}.")

    def close(self) -> None:
        if self._opened:
            self.fn.close()


class ProcessOperator(ContextFunction):
    """``s.process(fn, schema)``, and of two streams ``s.connect(other).process(fn, schema)``."""

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        self._process_without_key(batch, port, out)


_ONE = (str, bytes, bytearray, dict, Row)


def several(found: Iterable[Any], schema: pa.Schema, verb: str = "process") -> Iterable[Any]:
    """What ``verb``'s function gave, unless it is one row where a list of rows is meant: iterating it would tear it apart."""
    if isinstance(found, _ONE) or (isinstance(found, tuple) and not _are_rows(found, schema)):
        raise TypeError(
            f"{verb} returned {shortened(found)}, a single {type(found).__name__}: yield it, or return a list of results"
        )
    if not isinstance(found, Iterable):
        raise TypeError(
            f"{verb} returned {shortened(found)}, which is no list of results: yield each, or return a list"
        )
    return found


def _are_rows(found: tuple[Any, ...], schema: pa.Schema) -> bool:
    """Of one column they may be bare values."""
    return len(schema) == 1 or all(isinstance(each, tuple | dict) for each in found)
