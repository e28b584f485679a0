"""Streams: what users write. Every method adds a node to the pipeline and returns the stream behind it."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Self

import polars as pl
import pyarrow as pa

from cutwater.arguments import methods_take_no_others
from cutwater.connectors.collect import Collect
from cutwater.connectors.print import print_sink
from cutwater.connectors.sink import Sink
from cutwater.duration import Duration, whole_milliseconds
from cutwater.errors import ConfigError, SchemaError
from cutwater.flow.columns import check_key_type
from cutwater.flow.event_time import EventTime
from cutwater.functions import KeyedProcess, Process, checked_instance, refuse_keyed_state
from cutwater.given_functions import checked_function
from cutwater.graph.logical import Exchange, NodeKind
from cutwater.nullability import either_nullable
from cutwater.operators.collect import CollectOperator
from cutwater.operators.column_functions import FilterExpression, MapBatches, Select, WithColumns
from cutwater.operators.loosen import Loosen
from cutwater.operators.operator import Operator
from cutwater.operators.process import FunctionInput, ProcessOperator
from cutwater.operators.row_functions import Filter, FlatMap, Map
from cutwater.operators.sink_operator import SinkOperator
from cutwater.operators.timestamps import WithTimestamps
from cutwater.pipeline import Draft, Upstream, checked_parallelism, checked_uid
from cutwater.schema import SchemaLike, require_columns
from cutwater.state.frozen import refuse_reserved

if TYPE_CHECKING:
    from cutwater.connected_stream import ConnectedStreams
    from cutwater.environment import Environment
    from cutwater.keyed_stream import KeyedStream

Expression = pl.Expr | str
RowFunction = Callable[[Any], Any]


@methods_take_no_others
class Stream:
    """Records of one schema, from one or (after ``union``) several inputs."""

    def __init__(
        self,
        env: "Environment",
        inputs: tuple[Upstream, ...],
        schema: pa.Schema,
        *,
        nameable: bool,
        time: EventTime | None = None,
    ) -> None:
        self._env = env
        self._inputs = inputs
        self._nameable = nameable
        self._time = time
        self.schema = schema

    # --- rows ---------------------------------------------------------------------------------------------------------

    def map(self, fn: RowFunction, schema: SchemaLike) -> "Stream":
        """One row in, one out: ``fn(row)`` returns a tuple, a dict or a row."""
        return self._then("map", Map(checked_function("map", fn, "row"), schema))

    def flat_map(self, fn: RowFunction, schema: SchemaLike) -> "Stream":
        """One row in, any number out: ``fn(row)`` returns or yields rows."""
        return self._then("flat_map", FlatMap(checked_function("flat_map", fn, "row"), schema))

    def filter(self, condition: "RowFunction | Expression") -> "Stream":
        """Keep rows for which a function, a Polars expression or a SQL condition is true."""
        if isinstance(condition, pl.Expr | str):
            return self._then("filter", FilterExpression(condition))
        return self._then("filter", Filter(checked_function("filter", condition, "row")))

    def process(self, fn: Process, schema: SchemaLike) -> "Stream":
        """An own function with ``open``, ``process(row, ctx)`` and side outputs."""
        kind = fn if isinstance(fn, type) else type(fn)
        if issubclass(kind, KeyedProcess):
            raise ConfigError(f"{kind.__name__} keeps state by key: write s.key_by(...).process(...).")
        instance = self._env.own("process", checked_instance("process", fn, Process))
        refuse_keyed_state("process", instance)
        return self._then("process", ProcessOperator(instance, schema, [FunctionInput("process", self._time)]))

    # --- columns ------------------------------------------------------------------------------------------------------

    def select(self, *expressions: Expression, **named: Expression) -> "Stream":
        """These columns and no others: names, Polars expressions or SQL (``"n * 2 AS twice"``, ``twice="n * 2"``)."""
        return self._then("select", Select(*expressions, **named))

    def with_columns(self, *expressions: Expression, **named: Expression) -> "Stream":
        """All columns, and these: written as for ``select``; one of a known name takes the place of the old one."""
        return self._then("with_columns", WithColumns(*expressions, **named))

    def map_batches(self, fn: Callable[[pl.DataFrame], pl.DataFrame], schema: SchemaLike) -> "Stream":
        """Whole batches: ``fn(df)`` gets and returns a ``pl.DataFrame``. How many rows come together is not promised."""
        return self._then("map_batches", MapBatches(checked_function("map_batches", fn, "df"), schema))

    # --- time ---------------------------------------------------------------------------------------------------------

    def with_timestamps(
        self, column: str, out_of_orderness: Duration = timedelta(0), idle_after: Duration | None = None
    ) -> "Stream":
        """Event time: ``column`` (a timestamp, or a long of milliseconds) says when each record happened.

        A record that comes more than ``out_of_orderness`` behind the latest one of its split may be late. A split that is
        silent for ``idle_after`` holds the others back no longer. What follows keeps the time as long as it keeps the column.
        """
        if not isinstance(column, str):
            raise ConfigError(f"with_timestamps: {column!r} is not the name of a column.")
        lag = whole_milliseconds("out_of_orderness", out_of_orderness, allow_zero=True)
        patience = None if idle_after is None else whole_milliseconds("idle_after", idle_after)
        time = EventTime((column,))
        stream = self._then("with_timestamps", WithTimestamps(time, lag, patience))
        stream._time = time
        return stream

    # --- how records travel -------------------------------------------------------------------------------------------

    def union(self, *others: "Stream") -> "Stream":
        """All records of all streams. Their schemas may differ in nullability only: null is what may be null in one of them."""
        schema = self.schema
        for other in others:
            if not isinstance(other, Stream):
                raise ConfigError(f"union: {other!r} is not a stream.")
            if other._env is not self._env:
                raise ConfigError("union: the streams belong to different environments.")
            united = either_nullable(schema, other.schema)
            if united is None:
                raise SchemaError(f"union: the schemas differ: [{_told(self.schema)}] and [{_told(other.schema)}].")
            schema = united
        inputs = tuple(up for stream in (self, *others) for up in stream._loosened(schema))
        time = self._time if all(other._time == self._time for other in others) else None
        return Stream(self._env, inputs, schema, nameable=False, time=time)

    def connect(self, other: "Stream") -> "ConnectedStreams":
        """Two inputs of one function: ``a.connect(b).process(MyCoProcess(), schema)``."""
        from cutwater.connected_stream import ConnectedStreams

        return ConnectedStreams(self, other)

    def rebalance(self) -> "Stream":
        """Spread records evenly over the subtasks of the next operator."""
        return self._by(Exchange.REBALANCE)

    def broadcast(self) -> "Stream":
        """Every record to every subtask of the next operator."""
        return self._by(Exchange.BROADCAST)

    def key_by(self, *columns: str) -> "KeyedStream":
        """Records with equal keys meet in one subtask, in the order of their channel.

        It takes the place of a ``rebalance`` or ``broadcast`` directly before it: records travel once, by their key.
        """
        if not columns:
            raise ConfigError("key_by: name at least one column.")
        for column in columns:
            if not isinstance(column, str):
                raise ConfigError(
                    f"key_by: {column} is not the name of a column. Write key_by('word', 'day'); what has to be computed first "
                    "becomes a column by with_columns."
                )
        require_columns(self.schema, columns, "key_by")
        for at, column in enumerate(columns):
            if column in columns[:at]:
                raise ConfigError(f"key_by: column {column!r} is given twice; name it once.")
            refuse_reserved(column, "key_by")
            check_key_type(column, self.schema.field(column).type)
        from cutwater.keyed_stream import KeyedStream

        inputs = tuple(Upstream(up.draft, up.tag) for up in self._inputs)
        return KeyedStream(self._env, inputs, self.schema, columns, self._time)

    def side_output(self, tag: str) -> "Stream":
        """The records that the operator before sent to its side output ``tag``."""
        if len(self._inputs) != 1:
            raise ConfigError(f"side_output({tag!r}): a union has no side outputs; ask the stream that has it.")
        draft = self._inputs[0].draft
        if tag not in list(draft.side_schemas):  # a list: whatever it is need not be hashable
            known = ", ".join(sorted(draft.side_schemas)) or "none"
            raise ConfigError(f"side_output({tag!r}): {draft.name} has no such side output (it has: {known}).")
        time = draft.side_times.get(tag)
        return Stream(self._env, (Upstream(draft, tag),), draft.side_schemas[tag], nameable=False, time=time)

    # --- where records go ---------------------------------------------------------------------------------------------

    def write(self, sink: Sink, uid: str | None = None, parallelism: int | None = None) -> None:
        """Records end in ``sink``. A stream may be written to several; ``uid`` is the name its transactions go by."""
        if not isinstance(sink, Sink):
            raise ConfigError(f"write: {sink!r} is not a sink. Use cw.parquet_sink(path) or another cw.*_sink.")
        sink = self._env.own("write", sink)
        sink.check(self.schema)
        operator = CollectOperator(self.schema) if isinstance(sink, Collect) else SinkOperator(sink, self.schema)
        draft = Draft(sink.describe(), NodeKind.SINK, operator, self._inputs, self.schema, sink=sink)
        draft.uid = checked_uid(uid) if uid is not None else None
        draft.parallelism = checked_parallelism(parallelism) if parallelism is not None else None
        self._env.add(draft)

    def collect(self, name: str) -> None:
        """Rows for the driver: ``result.rows(name)``."""
        self.write(Collect(checked_uid(name, "name")), uid=f"collect-{name}")

    def print(self) -> None:
        """Rows on the driver's standard output."""
        self.write(print_sink())

    # --- names --------------------------------------------------------------------------------------------------------

    def uid(self, uid: str) -> Self:
        """The name under which this operator's state is found again. Every stateful operator should have one."""
        self._own_draft("uid").uid = checked_uid(uid)
        return self

    def named(self, name: str) -> Self:
        """What plans and messages call this operator. Only shown: state is found by ``uid``."""
        self._own_draft("named").name = _checked_name(name)
        return self

    def with_parallelism(self, parallelism: int) -> Self:
        """How many subtasks this operator has, whatever the environment says."""
        self._own_draft("with_parallelism").parallelism = checked_parallelism(parallelism)
        return self

    # --- inside -------------------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> NoReturn:
        """What needs keys stands behind ``key_by``."""
        from cutwater.keyed_stream import KeyedStream

        if name.startswith("_") or not hasattr(KeyedStream, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise ConfigError(f"{name} needs keys: write .key_by(...).{name}(...).")

    def _own_draft(self, method: str) -> Draft:
        if not self._nameable:
            raise ConfigError(
                f"{method}() cannot stand here: key_by, union, rebalance, broadcast and side_output are not operators. "
                f"Write it behind the operator that it is meant for."
            )
        return self._inputs[0].draft

    def _by(self, exchange: Exchange) -> "Stream":
        inputs = tuple(Upstream(up.draft, up.tag, exchange) for up in self._inputs)
        return Stream(self._env, inputs, self.schema, nameable=False, time=self._time)

    def _loosened(self, schema: pa.Schema) -> tuple[Upstream, ...]:
        """Its inputs under a schema that allows more nulls; the change is made where the records come from."""
        return self._inputs if self.schema.equals(schema) else tuple(self._loosen(up, schema) for up in self._inputs)

    def _loosen(self, up: Upstream, schema: pa.Schema) -> Upstream:
        draft = Draft("loosen", NodeKind.OPERATOR, Loosen(schema), (Upstream(up.draft, up.tag),), schema)
        draft.follows = up.draft
        self._env.add(draft)
        return Upstream(draft, None, up.exchange)

    def _then(self, name: str, operator: Operator, inputs: tuple[Upstream, ...] | None = None) -> "Stream":
        stream = add_operator(self._env, name, operator, inputs or self._inputs, [self])
        stream._time = time_kept([self], stream.schema)
        return stream


def add_operator(
    env: "Environment",
    name: str,
    operator: Operator,
    inputs: tuple[Upstream, ...],
    streams: "Sequence[Stream | KeyedStream]",
) -> Stream:
    """``streams`` are what the operator reads, by port."""
    schema = operator.output_schema([stream.schema for stream in streams])
    draft = Draft(name, NodeKind.OPERATOR, operator, inputs, schema, operator.side_schemas())
    times = {
        tag: time_kept([streams[port] for port in operator.ports_of_side(tag)], side)
        for tag, side in draft.side_schemas.items()
    }
    draft.side_times = {tag: time for tag, time in times.items() if time is not None}
    env.add(draft)
    return Stream(env, (Upstream(draft),), schema, nameable=True)


def time_kept(streams: "Sequence[Stream | KeyedStream]", schema: pa.Schema) -> EventTime | None:
    """Of records of ``schema`` that are made of those of ``streams``: the first time whose column is still there."""
    for stream in streams:
        if stream._time is not None and stream._time.is_kept(stream.schema, schema):
            return stream._time
    return None


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"named({name!r}): a non-empty string is needed.")
    return name


def _told(schema: pa.Schema) -> str:
    return ", ".join(f"{each.name} {each.type}{'' if each.nullable else ' not null'}" for each in schema)
