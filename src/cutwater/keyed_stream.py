"""Keyed streams: where state is."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import pyarrow as pa

from cutwater.aggregates import AggregateSpec
from cutwater.duration import Duration, parse_duration
from cutwater.errors import ConfigError
from cutwater.flow.event_time import EventTime
from cutwater.functions import KeyedProcess, checked_callable, checked_instance
from cutwater.graph.logical import Exchange, NodeKind
from cutwater.operators.aggregate import Aggregate
from cutwater.operators.combine import Combine
from cutwater.operators.keyed_process import KeyedProcessOperator, KeyedReduce
from cutwater.operators.operator import Operator
from cutwater.pipeline import Draft, Upstream
from cutwater.schema import SchemaLike
from cutwater.stream import Stream, add_operator
from cutwater.windowed_stream import WindowedStream
from cutwater.windows import Windows

if TYPE_CHECKING:
    from cutwater.environment import Environment


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

    def agg(self, **aggregates: AggregateSpec) -> Stream:
        """Running aggregates: key columns and results, one updated row per key and batch."""
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

    def window(
        self,
        windows: Windows,
        time: Literal["event", "processing"] = "event",
        allowed_lateness: Duration = timedelta(0),
    ) -> WindowedStream:
        """Records of one key by time: ``cw.tumbling("5s")``, ``cw.sliding("10s", "5s")``.

        Event time needs ``with_timestamps``; processing time is when a record arrives. While ``allowed_lateness`` lasts, what
        late records change is told again; later ones come out of ``side_output("late")``.
        """

        if not isinstance(windows, Windows):
            raise ConfigError(f"window: {windows!r} is no window; write cw.tumbling('5s') or cw.sliding('10s', '5s').")
        if time not in ("event", "processing"):
            raise ConfigError(f"window: time={time!r} must be 'event' or 'processing'.")
        lateness = parse_duration("allowed_lateness", allowed_lateness, allow_zero=True) // timedelta(milliseconds=1)
        if time == "event" and self._time is None:
            raise ConfigError(
                "window: the records have no event time here. Name its column with s.with_timestamps('ts', ...) before key_by, and "
                "keep that column up to here; or use time='processing'."
            )
        if time == "processing" and lateness:
            raise ConfigError("window: allowed_lateness has no meaning with time='processing': no record is late.")
        by_event = self._time if time == "event" else None
        return WindowedStream(self._env, self._inputs, self.schema, self._columns, windows, by_event, lateness)

    def reduce(self, fn: Callable[[Any, Any], Any]) -> Stream:
        """``fn(reduced, row)`` gives the new reduced row of the key; emitted for every record."""
        return self._keyed("reduce", KeyedReduce(checked_callable("reduce", fn), self._columns))

    def process(self, fn: KeyedProcess, schema: SchemaLike) -> Stream:
        """An own function with state by key."""
        instance = checked_instance("process", fn, KeyedProcess)
        return self._keyed("process", KeyedProcessOperator(instance, schema, self._columns, self._time))

    def __getattr__(self, name: str) -> NoReturn:
        """A keyed stream is no operator and no stream of records: what a stream can do stands before it or behind."""
        if name.startswith("_") or not hasattr(Stream, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise ConfigError(f"{name} cannot stand behind key_by: write it before it, or behind agg, reduce or process.")

    def _keyed(self, name: str, operator: Operator) -> Stream:
        inputs = tuple(Upstream(up.draft, up.tag, Exchange.KEY_GROUP, self._columns) for up in self._inputs)
        stream = add_operator(self._env, name, operator, inputs, [self.schema])
        if self._time is not None and self._time.is_kept(self.schema, stream.schema):
            stream._time = self._time
        return stream
