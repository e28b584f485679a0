"""Keyed streams: where state is."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import polars as pl
import pyarrow as pa

from cutwater.aggregates import AggregateKind, AggregateSpec, Aggregation, in_columns, refuse_aggregate_as_verb
from cutwater.arguments import methods_take_no_others
from cutwater.duration import Duration, whole_milliseconds
from cutwater.errors import ConfigError
from cutwater.flow.event_time import EventTime
from cutwater.functions import KeyedProcess, checked_instance
from cutwater.given_functions import checked_function
from cutwater.graph.logical import Exchange, NodeKind
from cutwater.joining import both_times, joined
from cutwater.operators.aggregate import Aggregate
from cutwater.operators.combine import Combine
from cutwater.operators.join import EquiJoin, IntervalJoin
from cutwater.operators.kept_aggregate import KeptAggregate
from cutwater.operators.keyed_process import KeyedProcessOperator, KeyedReduce
from cutwater.operators.operator import Operator
from cutwater.operators.process import FunctionInput
from cutwater.pipeline import Draft, Upstream
from cutwater.schema import SchemaLike
from cutwater.stream import Stream, add_operator, time_kept
from cutwater.windowed_stream import WindowedStream
from cutwater.windows import Sessions, Windows

if TYPE_CHECKING:
    from cutwater.connected_stream import ConnectedStreams
    from cutwater.environment import Environment


@methods_take_no_others
class KeyedStream:
    """A stream whose records meet by key. State belongs to keys, so stateful operators stand here.

    ``inputs`` are where records come from: how they travel on is settled here.
    """

    def __init__(
        self,
        env: "Environment",
        inputs: tuple[Upstream, ...],
        schema: pa.Schema,
        columns: tuple[str, ...],
        time: EventTime | None,
    ) -> None:
        self._env = env
        self._inputs = inputs
        self._columns = columns
        self._time = time
        self.schema = schema

    def agg(self, **aggregates: Aggregation) -> Stream:
        """Running aggregates: key columns and results, one updated row per key and batch.

        A result is ``cw.count()`` and the like, or a ``cw.AggregateFunction``.
        """
        columnar = in_columns(aggregates)
        if columnar is None:
            _refuse_what_grows(aggregates)
            return self._keyed("agg", KeptAggregate(self._columns, aggregates))
        return self._combined(columnar)

    def _combined(self, aggregates: Mapping[str, AggregateSpec]) -> Stream:
        """In columns, with combined rows on the way."""
        combines = [Combine(self._columns, aggregates) for _ in self._inputs]
        partials = [combine.output_schema([self.schema]) for combine in combines]
        before = [
            Draft("combine", NodeKind.OPERATOR, combine, (up,), partial)
            for combine, up, partial in zip(combines, self._inputs, partials, strict=True)
        ]
        aggregate = Aggregate(self._columns, aggregates, partial=True)
        schema = aggregate.output_schema(partials[:1])
        inputs = tuple(Upstream(draft, None, Exchange.KEY_GROUP, self._columns) for draft in before)
        draft = Draft("agg", NodeKind.OPERATOR, aggregate, inputs, schema)
        for helper in before:
            helper.follows = draft
            self._env.add(helper)
        self._env.add(draft)
        return Stream(self._env, (Upstream(draft),), schema, nameable=True)

    def connect(self, other: "KeyedStream | Stream") -> "ConnectedStreams":
        """Two inputs of one function: ``a.connect(b).process(MyCoProcess(), schema)``."""
        from cutwater.connected_stream import ConnectedStreams

        return ConnectedStreams(self, other)

    def window(
        self,
        windows: Windows | Sessions,
        time: Literal["event", "processing"] = "event",
        allowed_lateness: Duration = timedelta(0),
        early: Duration | None = None,
    ) -> WindowedStream:
        """Records of one key by time: ``cw.tumbling("5s")``, ``cw.sliding("10s", "5s")``, ``cw.session("30s")``.

        Event time needs ``with_timestamps``; processing time is when a record arrives. While ``allowed_lateness`` lasts, what
        late records change is told again; later ones come out of ``side_output("late")``. With ``early="10s"`` what changes in
        windows that are not over yet is told that often by the clock, and a column ``early`` says which results those are.
        """

        if not isinstance(windows, Windows | Sessions):
            raise ConfigError(
                f"window: {windows!r} is no window; write cw.tumbling('5s'), cw.sliding('10s', '5s') or cw.session('30s')."
            )
        if time not in ("event", "processing"):
            raise ConfigError(f"window: time={time!r} must be 'event' or 'processing'.")
        lateness = whole_milliseconds("allowed_lateness", allowed_lateness, allow_zero=True)
        if time == "event" and self._time is None:
            raise ConfigError(
                "window: the records have no event time here. Name its column with s.with_timestamps('ts', ...) before key_by, and "
                "keep that column up to here; or use time='processing'."
            )
        if time == "processing" and lateness:
            raise ConfigError("window: allowed_lateness has no meaning with time='processing': no record is late.")
        by_event = self._time if time == "event" else None
        every = None if early is None else whole_milliseconds("early", early)
        return WindowedStream(self, windows, by_event, lateness, every)

    def join(self, other: "KeyedStream", within: Duration | None = None) -> Stream:
        """Pairs of records with equal keys: all there ever were or, with ``within``, those whose event times are that near.

        Key columns, the other columns of this stream, those of ``other`` (``x_right`` if there is an ``x`` already). A null key
        is equal to nothing. With ``within`` late records come out of ``side_output("late")`` and ``side_output("late_right")``.
        """
        keys = (self._columns, self._checked_partner("join", other)._columns)
        if within is None:
            return joined(self, other, EquiJoin(*keys))
        apart = whole_milliseconds("within", within, allow_zero=True)
        return joined(self, other, IntervalJoin(*keys, both_times("join with within=", self, other), apart))

    def _checked_partner(self, method: str, other: object) -> "KeyedStream":
        if not isinstance(other, KeyedStream):
            raise ConfigError(f"{method}: {other!r} is not keyed; write {method}(other.key_by(...)).")
        if other._env is not self._env:
            raise ConfigError(f"{method}: the streams belong to different environments.")
        if len(other._columns) != len(self._columns):
            raise ConfigError(
                f"{method}: the keys are {', '.join(self._columns)} and {', '.join(other._columns)}; they must be as many."
            )
        return other

    def reduce(self, fn: Callable[[Any, Any], Any]) -> Stream:
        """``fn(reduced, row)`` gives the new reduced row of the key; emitted for every record."""
        return self._keyed("reduce", KeyedReduce(checked_function("reduce", fn, "reduced", "row"), self._columns))

    def process(self, fn: KeyedProcess, schema: SchemaLike) -> Stream:
        """An own function with state by key."""
        instance = self._env.own("process", checked_instance("process", fn, KeyedProcess))
        own = FunctionInput("process", self._time, self._columns)
        return self._keyed("process", KeyedProcessOperator(instance, schema, [own]))

    def __getattr__(self, name: str) -> NoReturn:
        """A keyed stream is no operator and no stream of records: what a stream can do stands before it or behind."""
        refuse_aggregate_as_verb(name)
        if name.startswith("_") or not hasattr(Stream, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise ConfigError(f"{name} cannot stand behind key_by: write it before it, or behind agg, reduce or process.")

    def _keyed(self, name: str, operator: Operator) -> Stream:
        inputs = tuple(Upstream(up.draft, up.tag, Exchange.KEY_GROUP, self._columns) for up in self._inputs)
        stream = add_operator(self._env, name, operator, inputs, [self])
        stream._time = time_kept([self], stream.schema)
        return stream


def _refuse_what_grows(aggregates: Mapping[str, Aggregation]) -> None:
    for name, each in aggregates.items():
        match each:
            case AggregateSpec(kind=AggregateKind.COLLECT_LIST):
                told = str(each)
            case pl.Expr():
                told = "a Polars expression"
            case _:
                continue
        raise ConfigError(
            f"agg({name}=...): {told} needs all records of a key, and without a window they would be kept for ever. Write "
            f"k.window(...).agg({name}=...), or a cw.AggregateFunction that keeps less."
        )
