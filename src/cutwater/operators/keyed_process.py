"""Functions of the user with state by key: keyed process and reduce."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import GeneratorType
from typing import Any

import pyarrow as pa

from cutwater.errors import ConfigError, SchemaError
from cutwater.flow.ids import CheckpointId
from cutwater.flow.watermarks import MAX_WATERMARK, Milliseconds
from cutwater.functions import KeyedFunction, Timers
from cutwater.operators.keyed_state import KeyedStateOperator, StoreHolder, key_schema, keys_of
from cutwater.operators.operator import Collector, Json, OperatorContext, OperatorSnapshot
from cutwater.operators.process import ContextFunction, FunctionInput, several
from cutwater.operators.stored_watermark import restored_due, restored_watermark, stored_watermark
from cutwater.operators.timers import TimerQueue
from cutwater.operators.user_code import user_error
from cutwater.rows import Row, RowsInTurn, batch_of, row_of, row_type, rows_of
from cutwater.schema import SchemaLike
from cutwater.state.descriptors import bind_states, declared_states
from cutwater.state.value_types import handing_out

TIMERS_A_STEP = 256


class KeyedProcessOperator(ContextFunction, StoreHolder):
    """``k.process(fn, schema)`` and, of two keyed streams, ``k.connect(other).process(fn, schema)``.

    Results come in the order of the rows, with the state of the row's key at hand.
    """

    fn: KeyedFunction

    def __init__(self, fn: KeyedFunction, schema: SchemaLike, inputs: Sequence[FunctionInput]) -> None:
        super().__init__(fn, schema, inputs)
        self._key_schema: pa.Schema | None = None
        self._timers: dict[str, TimerQueue] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        """As timers and state call them: those of the first input."""
        return self.inputs[0].keys

    @property
    def by_clock(self) -> bool:
        """What has expired depends on it, too."""
        return super().by_clock or any(state.ttl is not None for state in declared_states(type(self.fn)).values())

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        schemas = [
            key_schema(schema, own.keys, "process") for own, schema in zip(self.inputs, inputs, strict=True) if own.keys
        ]
        for other in schemas[1:]:
            if [field.type for field in other] != [field.type for field in schemas[0]]:
                raise SchemaError(
                    f"connect: the keys are {_told(schemas[0])} on the left and {_told(other)} on the right; they must be as many "
                    f"and of the same types."
                )
        self._key_schema = schemas[0]
        return super().output_schema(inputs)

    def open(self, ctx: OperatorContext) -> None:
        assert self._key_schema is not None, "output_schema comes first, in the driver"
        self._open_store(ctx)
        self._states = bind_states(self.fn, self.store, ctx.uid, self._key_schema, ctx.now)
        self._timers = {kind: TimerQueue(self.store, kind, self._key_schema) for kind in self._timer_kinds()}
        super().open(ctx)
        self._fired_until = restored_watermark(ctx)
        """While timers fire that is behind ``context.watermark``; so it is behind a restore from between two steps."""
        self.know(restored_due(ctx))
        self._steps = ctx.steps
        self.context.timers = Timers(self._set_timer)

    def state_names(self) -> frozenset[str]:
        """Of all that ``open`` makes a table for."""
        return frozenset((*declared_states(type(self.fn)), *map(TimerQueue.table_name, self._timer_kinds())))

    def _timer_kinds(self) -> tuple[str, ...]:
        return ("event", "processing") if type(self.fn).on_timer is not KeyedFunction.on_timer else ()

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        own = self.inputs[port]
        if not own.keys:
            self._process_broadcast(batch, port, out)
            return
        process, ctx, holder = getattr(self.fn, own.method), self.context, self._states.key_holder
        assert self._store is not None
        rows = self._turn.of(RowsInTurn(batch).rows, batch.num_rows)
        keys = list(keys_of(batch, own.keys))
        self._store.expect(keys)
        results: list[Any] = []
        extend = results.extend
        row: Row | None = None
        try:
            for key, ctx.timestamp, row in zip(keys, self._times_of(batch, port), rows):  # noqa: B905 (times may be endless)
                holder.key = ctx.key = key
                found = process(row, ctx)
                if type(found) is GeneratorType:
                    extend(found)
                elif found is not None:
                    extend(several(found, self.schema, own.method))
        except Exception as error:
            raise user_error(error, self.where, row) from error
        self._emit(results, out)
        self._states.tend()

    def _process_broadcast(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        """Rows that every subtask gets: there is no key, and so no state by key."""
        self._states.leave()
        self.context.key = None
        self._process_without_key(batch, port, out)
        self._states.tend()

    def _set_timer(self, kind: str, time: Milliseconds) -> None:
        if not self._timers:
            raise ConfigError(f"{type(self.fn).__name__} sets timers and needs a method on_timer(self, timestamp, ctx)")
        if kind == "event" and all(own.time is None for own in self.inputs):
            raise ConfigError(
                "ctx.timers.event_time: event-time timers come with with_timestamps, which this stream does not have; "
                "write s.with_timestamps('ts', ...).key_by(...)"
            )
        self._timers[kind].set(self._states.key, time)

    def on_watermark(self, watermark: Milliseconds, out: Collector) -> Iterator[None]:
        yield from self._fire_until(watermark, out)
        out.advance(watermark)

    def resuming(self, out: Collector) -> Iterator[None]:
        """Timers leave the state one by one: those that are left and due had not fired yet."""
        if (watermark := self.context.watermark) is not None:
            yield from self._fire_until(watermark, out)

    def _fire_until(self, watermark: Milliseconds, out: Collector) -> Iterator[None]:
        """A watermark that is told again fires nothing, or else a timer that was set for a time which had passed would fire sooner
        behind a restore: it waits until time goes on, or ends."""
        if watermark > self._fired_until or watermark == MAX_WATERMARK:
            self.know(watermark)
            if self._timers:
                timers = self._timers["event"]
                yield from self._fire(timers.last() if watermark == MAX_WATERMARK else timers.due(watermark), out)
            self._fired_until = watermark

    def next_timer(self) -> Milliseconds | None:
        return self._timers["processing"].earliest() if self._timers else None

    def on_processing_time(self, now: Milliseconds, out: Collector) -> Iterator[None]:
        if self._timers:
            yield from self._fire(self._timers["processing"].due(now), out)

    def _fire(self, due: Iterable[tuple[Milliseconds, Any]], out: Collector) -> Iterator[None]:
        ctx = self.context
        for step in self._steps.of(due, TIMERS_A_STEP):
            results: list[Any] = []
            for time, key in step:
                self._states.key = key
                # state knows a key of several columns as a plain tuple
                ctx.key = key if len(self.keys) == 1 else tuple.__new__(row_type(self.keys), key)
                ctx.timestamp = time
                try:
                    found = self.fn.on_timer(time, ctx)
                    if found is not None:
                        results.extend(several(found, self.schema, "on_timer"))
                except Exception as error:
                    raise user_error(error, f"{self.where}, on_timer({time}) of key {key!r}") from error
            self._emit(results, out)
            self._states.tend()
            yield

    def _stored_time(self) -> Mapping[str, Json]:
        watermark = self.context.watermark
        if watermark is None or watermark == self._fired_until:
            return super()._stored_time()
        return stored_watermark(self._fired_until, watermark)

    def snapshot(self, checkpoint: CheckpointId) -> OperatorSnapshot:
        time = super().snapshot(checkpoint)
        return OperatorSnapshot(inline=time and time.inline, tables=self._states.freeze(checkpoint))

    def close(self) -> None:
        if self._opened:
            self._states.leave()
        try:
            super().close()
        finally:
            StoreHolder.close(self)


class KeyedReduce(KeyedStateOperator):
    """``k.reduce(fn)``: ``fn(reduced, row)`` gives the key's new reduced row, emitted for every row that came."""

    TABLE = "reduced"

    def __init__(self, fn: Callable[[Row, Row], Any], keys: Sequence[str]) -> None:
        self.fn = fn
        self.keys = tuple(keys)
        self.schema: pa.Schema | None = None
        self.where = "reduce"

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        self._key_schema = key_schema(inputs[0], self.keys, "reduce")
        self.schema = inputs[0]
        return self.schema

    def open(self, ctx: OperatorContext) -> None:
        assert self.schema is not None, "output_schema comes first, in the driver"
        self.where = f"reduce {ctx.name!r} ({ctx.uid})"
        self._open_store(ctx)
        self._turn = ctx.turn
        stored = pa.struct(list(self.schema))
        self._table = self.store.rows(self.TABLE, self._key_schema, stored)
        self._copied = handing_out(stored)

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        assert self.schema is not None
        fn, schema, where, read, copied = self.fn, self.schema, self.where, self._table.get, self._copied
        # State is read and written once for each key of the batch: no cut comes between its rows.
        reduced: dict[Any, Row] = {}
        latest: dict[Any, int] = {}
        results: list[Row] = []
        row: Row
        rows = self._turn.of(RowsInTurn(batch).rows, batch.num_rows)
        keys = list(keys_of(batch, self.keys))
        self.store.expect(keys)
        for at, (key, row) in enumerate(zip(keys, rows)):  # noqa: B905 (its turn may end before the batch does)
            old = reduced[key] if key in reduced else read(key)
            if old is None:
                new = row
            else:
                try:
                    answer = fn(old if copied is None else copied(old), row)
                except Exception as error:
                    raise user_error(error, where, row) from error
                new = row_of(answer, schema, where)
            reduced[key] = new
            latest[key] = at
            results.append(new)
        if not results:
            return
        emitted = batch_of(results, schema, where)
        # What is kept is read back from the batch: it is what a restore would give, and the function has no hand on it.
        for key, kept in zip(latest, rows_of(emitted.take(pa.array(latest.values()))), strict=True):
            self._table.put(key, kept)
        out.emit(emitted)
        self.store.tend()


def _told(keys: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in keys)
