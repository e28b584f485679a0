"""Windows of a keyed stream."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from cutwater.aggregates import AggregateFunction, AggregateSpec, Aggregation, in_columns, refuse_aggregate_as_verb
from cutwater.arguments import methods_take_no_others
from cutwater.errors import ConfigError
from cutwater.flow.event_time import EventTime
from cutwater.flow.watermarks import Milliseconds
from cutwater.functions import WindowProcess, checked_instance, refuse_keyed_state
from cutwater.given_functions import checked_function
from cutwater.graph.logical import Exchange, NodeKind
from cutwater.joining import both_times, joined
from cutwater.operators.accumulators import plan_aggregates
from cutwater.operators.combine import Combine
from cutwater.operators.kept_contents import Accumulated, Processed, Reduced
from cutwater.operators.kept_windows import KeptWindows
from cutwater.operators.operator import Operator
from cutwater.operators.session_windows import SessionWindows
from cutwater.operators.window_aggregate import PARTIAL, RAW, EventTimeWindows, ProcessingTimeWindows
from cutwater.operators.window_content import WindowContent
from cutwater.operators.window_expressions import WindowExpressions
from cutwater.operators.window_function import WindowProcessOperator
from cutwater.operators.window_join import WindowJoin
from cutwater.operators.window_panes import DOUBTFUL, PANE, AssignPanes
from cutwater.operators.window_results import LATE, WINDOW_END
from cutwater.pipeline import Draft, Upstream
from cutwater.schema import SchemaLike
from cutwater.stream import Stream, add_operator
from cutwater.windows import Sessions, Windows

if TYPE_CHECKING:
    from cutwater.keyed_stream import KeyedStream


@methods_take_no_others
class WindowedStream:
    """``k.window(...)``: what is computed for each key and window."""

    def __init__(
        self,
        keyed: "KeyedStream",
        windows: Windows | Sessions,
        time: EventTime | None,
        lateness: Milliseconds,
        early: Milliseconds | None,
    ) -> None:
        """``time`` None: by the clock. ``early`` None: nothing is told before its time."""
        self._keyed = keyed
        self._env = keyed._env
        self._inputs = keyed._inputs
        self._schema = keyed.schema
        self._columns = keyed._columns
        self._windows = windows
        self._time = time
        self._lateness = lateness
        self._early = early

    def __getattr__(self, name: str) -> NoReturn:
        """Windows are no stream before something is computed of them."""
        from cutwater.keyed_stream import KeyedStream

        refuse_aggregate_as_verb(name)
        if name.startswith("_") or not (hasattr(Stream, name) or hasattr(KeyedStream, name)):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise ConfigError(f"{name} cannot stand behind window: write it behind agg, reduce, process or join.")

    def agg(self, **aggregates: Aggregation) -> Stream:
        """Key columns, ``window_start``, ``window_end`` and results: one row for each key and window, when it is over.

        A result is ``cw.count()`` and the like, a Polars expression over the rows of the key and window, or a
        ``cw.AggregateFunction``.
        """
        if isinstance(self._windows, Sessions):
            return self._kept(Accumulated(aggregates))
        columnar = in_columns(aggregates)
        if columnar is not None:
            return self._in_columns(columnar, self._windows)
        if any(isinstance(each, AggregateFunction) for each in aggregates.values()):
            return self._kept(Accumulated(aggregates))
        return self._gathered(
            WindowExpressions(aggregates, self._columns, self._windows, self._time, self._lateness, self._early)
        )

    def _in_columns(self, aggregates: Mapping[str, AggregateSpec], windows: Windows) -> Stream:
        """Combined by pane before the exchange."""
        plan_aggregates(self._schema, self._columns, aggregates)  # what is wrong is told in columns that the user knows
        helpers: list[Draft] = []
        inputs: list[Upstream] = []
        for up in self._inputs:
            if self._time is None:
                combine = _draft("combine", Combine(self._columns, aggregates), up, self._schema)
            else:
                assign = _draft("panes", AssignPanes(windows, self._time, self._lateness), up, self._schema)
                helpers.append(assign)
                inputs.append(Upstream(assign, DOUBTFUL, Exchange.KEY_GROUP, self._columns, RAW))
                by = (*self._columns, PANE)
                combine = _draft("combine", Combine(by, aggregates), Upstream(assign), assign.schema)
            helpers.append(combine)
            inputs.append(Upstream(combine, None, Exchange.KEY_GROUP, self._columns, PARTIAL))
        schemas = [combine.schema]
        operator: Operator
        if self._time is None:
            operator = ProcessingTimeWindows(self._columns, aggregates, windows, self._early)
        else:
            operator = EventTimeWindows(self._columns, aggregates, windows, self._time, self._lateness, self._early)
            schemas.append(self._schema)
        schema = operator.output_schema(schemas)
        draft = Draft("window", NodeKind.OPERATOR, operator, tuple(inputs), schema, operator.side_schemas())
        if self._time is not None:
            draft.side_times = {LATE: self._time}
        for helper in helpers:
            helper.follows = draft
            self._env.add(helper)
        self._env.add(draft)
        return Stream(self._env, (Upstream(draft),), schema, nameable=True, time=self._time_of_results())

    def reduce(self, fn: Callable[[Any, Any], Any]) -> Stream:
        """``fn(reduced, row)`` over the rows of a key, as they come: the reduced row with ``window_start`` and ``window_end``
        behind it. Two sessions that become one are reduced by it as well."""
        return self._kept(Reduced(checked_function("reduce", fn, "reduced", "row")))

    def process(self, fn: "WindowProcess | Callable[[list[Any], Any], Any]", schema: SchemaLike) -> Stream:
        """``fn(rows, ctx)``, or a ``cw.WindowProcess``: its results with ``window_start`` and ``window_end`` behind them."""
        if isinstance(fn, type | WindowProcess) or not callable(fn):
            function = self._env.own("process", checked_instance("process", fn, WindowProcess))
            refuse_keyed_state("process", function)
        else:
            function = PlainFunction(checked_function("process", fn, "rows", "ctx"))
        if isinstance(self._windows, Sessions):
            return self._kept(Processed(function, schema))
        return self._gathered(
            WindowProcessOperator(
                function, schema, self._columns, self._windows, self._time, self._lateness, self._early
            )
        )

    def _kept(self, content: WindowContent) -> Stream:
        """By key, as values."""
        if isinstance(self._windows, Sessions):
            gap = self._windows.gap
            return self._gathered(SessionWindows(content, self._columns, gap, self._time, self._lateness, self._early))
        return self._gathered(
            KeptWindows(content, self._columns, self._windows, self._time, self._lateness, self._early)
        )

    def _gathered(self, operator: Operator) -> Stream:
        inputs = tuple(Upstream(up.draft, up.tag, Exchange.KEY_GROUP, self._columns) for up in self._inputs)
        stream = add_operator(self._env, "window", operator, inputs, [self._keyed])
        stream._time = self._time_of_results()
        if stream._time is not None and WINDOW_END not in self._schema.names:
            # What an own function says about a window belongs where its results do.
            draft = stream._inputs[0].draft
            ends = {tag for tag, side in draft.side_schemas.items() if stream._time.is_kept(stream.schema, side)}
            draft.side_times = {**draft.side_times, **dict.fromkeys(ends, stream._time)}
        return stream

    def _time_of_results(self) -> EventTime | None:
        """A result belongs to the last millisecond of its window: windows of windows find it there."""
        return None if self._time is None else EventTime((WINDOW_END,), -1)

    def join(self, other: "KeyedStream") -> Stream:
        """Pairs of records with equal keys in the same window: once for each window that both are in, as soon as both are there.

        Columns as of ``k.join``, with ``window_start`` and ``window_end`` behind the key. Late records come out of
        ``side_output("late")`` and, of ``other``, ``side_output("late_right")``.
        """
        partner = self._keyed._checked_partner("join", other)
        if self._time is None:
            raise ConfigError("window: a join needs event time; leave time='processing' out.")
        if self._early is not None:
            raise ConfigError("window: early has no meaning for a join: its pairs come out at once.")
        if self._lateness:
            raise ConfigError("window: allowed_lateness has no meaning for a join: its pairs come out at once.")
        if isinstance(self._windows, Sessions):
            raise ConfigError("window: a join needs windows that both streams share: cw.tumbling or cw.sliding.")
        times = both_times("join", self._keyed, partner)
        return joined(self._keyed, partner, WindowJoin(self._columns, partner._columns, times, self._windows))


class PlainFunction(WindowProcess):
    def __init__(self, fn: Callable[[list[Any], Any], Any]) -> None:
        self._fn = fn

    def process(self, rows: list[Any], ctx: Any) -> Any:
        return self._fn(rows, ctx)


def _draft(name: str, operator: Operator, up: Upstream, schema: pa.Schema) -> Draft:
    output = operator.output_schema([schema])
    return Draft(name, NodeKind.OPERATOR, operator, (up,), output, operator.side_schemas())
