"""Base classes of functions with a life of their own: opened, called for each row, closed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Any, Final, SupportsIndex

import pyarrow as pa

from cutwater.arguments import takes_no_others
from cutwater.errors import ConfigError
from cutwater.flow.watermarks import MAX_WATERMARK, MIN_WATERMARK, Milliseconds
from cutwater.given_functions import check_methods
from cutwater.rows import Row
from cutwater.schema import SchemaLike, arrow_schema
from cutwater.state.declared import StateDeclaration, declared
from cutwater.state.descriptors import StateDescriptor, declared_states
from cutwater.state.operator_states import BroadcastState, OperatorStateDescriptor

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _checked_name(what: str, name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{what}: name={name!r} must be a non-empty string")
    return name


@takes_no_others
class SideOutput:
    """A second output of a function, declared on its class: ``late = cw.SideOutput("late", "user string")``.

    Filled by ``ctx.emit(self.late, row)``, read by ``stream.side_output("late")``.
    """

    def __init__(self, name: str, schema: SchemaLike) -> None:
        self.name = _checked_name("SideOutput", name)
        self.schema: pa.Schema = arrow_schema(schema, f"SideOutput({name!r})'s schema")

    def __repr__(self) -> str:
        return f"SideOutput({self.name!r})"


class Counter:
    """A number that only grows, shown with the operator's other figures. Starts at 0 in every attempt."""

    __slots__ = ("_counters", "name")

    def __init__(self, name: str, counters: dict[str, int]) -> None:
        self.name = name
        self._counters = counters
        counters.setdefault(name, 0)

    def add(self, n: int = 1) -> None:
        self._counters[self.name] += n

    @property
    def value(self) -> int:
        return self._counters[self.name]


class Metrics:
    """``ctx.metrics``."""

    __slots__ = ("_counters",)

    def __init__(self, counters: dict[str, int]) -> None:
        self._counters = counters

    def counter(self, name: str) -> Counter:
        """The counter of that name; the same one for every caller in this operator's subtask."""
        return Counter(_checked_name("counter", name), self._counters)


class Timers:
    """``ctx.timers``: asks for ``on_timer`` of the current key later. The operator says what is possible."""

    __slots__ = ("_register",)

    def __init__(self, register: Callable[[str, Milliseconds], None]) -> None:
        self._register = register

    def event_time(self, timestamp: Milliseconds | datetime) -> None:
        """When the watermark has reached ``timestamp``: milliseconds, or a datetime with its zone."""
        self._register("event", _milliseconds("event_time", timestamp))

    def processing_time(self, timestamp: Milliseconds | datetime) -> None:
        """When the clock (``ctx.now``) has reached ``timestamp``."""
        self._register("processing", _milliseconds("processing_time", timestamp))


def _milliseconds(kind: str, timestamp: object) -> Milliseconds:
    match timestamp:
        case SupportsIndex() if not isinstance(timestamp, bool) and MIN_WATERMARK <= index(timestamp) <= MAX_WATERMARK:
            return index(timestamp)
        case datetime() if timestamp.tzinfo is not None:
            return (timestamp - _EPOCH) // timedelta(milliseconds=1)
    raise ConfigError(
        f"ctx.timers.{kind}({timestamp!r}): give milliseconds since the epoch (a whole number of 64 bits), like "
        "ctx.timestamp + 5000, or a datetime with a time zone"
    )


class OpenContext:
    """What ``open`` gets: where this copy of the function runs."""

    __slots__ = ("attempt", "metrics", "parallelism", "subtask")

    def __init__(self, subtask: int, parallelism: int, attempt: int, metrics: Metrics) -> None:
        self.subtask = subtask
        self.parallelism = parallelism
        self.attempt = attempt
        self.metrics = metrics


class ProcessContext(OpenContext):
    """What ``process`` and ``on_timer`` get. One object for all rows: do not keep it, keep what it says.

    ``key`` is the key's value, or a row of them when there are several key columns; None outside keyed functions.
    ``timestamp`` is the row's event time and ``watermark`` the operator's, in milliseconds, when the stream has them;
    ``window_start`` and ``window_end`` are set in functions of windows.
    """

    __slots__ = ("_clock", "_side", "key", "timers", "timestamp", "watermark", "window_end", "window_start")

    def __init__(
        self,
        opened: OpenContext,
        side: Mapping[str, list[Any]],
        clock: Callable[[], Milliseconds],
        timers: Timers,
    ) -> None:
        super().__init__(opened.subtask, opened.parallelism, opened.attempt, opened.metrics)
        self._side = side
        self._clock = clock
        self.timers = timers
        self.key: Any = None
        self.timestamp: Milliseconds | None = None
        self.watermark: Milliseconds | None = None
        self.window_start: Milliseconds | None = None
        self.window_end: Milliseconds | None = None

    @property
    def now(self) -> Milliseconds:
        """Processing time. Results that depend on it differ after a replay."""
        return self._clock()

    def emit(self, side: SideOutput, row: Any) -> None:
        """Put a row into a side output that is declared on the function's class."""
        try:
            self._side[side.name].append(row)
        except (KeyError, AttributeError):
            known = ", ".join(self._side) or "none"
            raise ConfigError(
                f"ctx.emit: {side!r} is not a side output of this function; declare it on the class as "
                f"late = cw.SideOutput('late', schema) and pass self.late; declared: {known}"
            ) from None


class Function:
    """What own functions share. An instance is pickled to the workers: it holds settings until ``open``."""

    def open(self, ctx: OpenContext) -> None:
        """Once in each subtask and attempt, before the first row; make connections here."""

    def close(self) -> None:
        """Once at the end, also after a failure in the same subtask. Not when the process is killed, as it is when the
        attempt ends because another subtask failed or the job is canceled."""

    def __setattr__(self, name: str, value: object) -> None:
        """As always, but what is declared on the class stays: an attribute in its place would belong to no key."""
        match getattr(type(self), name, None):
            case OperatorStateDescriptor():
                raise ConfigError(
                    f"{type(self).__name__}.{name} is a state and cannot be replaced; use its methods: append, extend, clear"
                )
            case StateDescriptor():
                raise ConfigError(
                    f"{type(self).__name__}.{name} is a state and cannot be replaced; write self.{name}.value = ... "
                    "(ValueState), or use its methods"
                )
            case SideOutput():
                raise ConfigError(
                    f"{type(self).__name__}.{name} is a side output and cannot be replaced; write ctx.emit(self.{name}, row)"
                )
        if isinstance(value, StateDeclaration):
            kind = type(value).__name__
            raise ConfigError(
                f"{type(self).__name__}.{name}: state is declared in the class body, not made in a method; write {name} = "
                f"cw.{kind}(...) under class {type(self).__name__}, above its methods."
            )
        object.__setattr__(self, name, value)

    @classmethod
    def side_outputs(cls) -> tuple[SideOutput, ...]:
        """Those declared on the class and its bases; two of one name are refused."""
        found: dict[str, SideOutput] = {}
        for value in declared(cls, SideOutput).values():
            if found.setdefault(value.name, value) is not value:
                raise ConfigError(f"{cls.__name__} declares two side outputs named {value.name!r}")
        return tuple(found.values())


class Process(Function):
    """A function without keys: ``s.process(MyProcess(), schema)``."""

    def process(self, row: Row, ctx: ProcessContext) -> Iterable[Any] | None:
        """Yield (or return a list of) results for the row; None stands for none."""
        raise NotImplementedError(f"{type(self).__name__} needs a method process(self, row, ctx)")


class KeyedFunction(Function):
    """What functions with state by key share: timers."""

    def on_timer(self, timestamp: Milliseconds, ctx: ProcessContext) -> Iterable[Any] | None:
        """A timer that was set for ``ctx.key`` is due. Results as in ``process``."""
        raise NotImplementedError(
            f"{type(self).__name__} sets timers and needs a method on_timer(self, timestamp, ctx)"
        )


class KeyedProcess(KeyedFunction):
    """A function with state for each key: ``s.key_by("user").process(MyProcess(), schema)``.

    State is declared on the class, ``seen = cw.ValueState("boolean")``, and inside ``process`` and ``on_timer`` means the
    state of the current key. Rows of one key come in order and never at the same time.
    """

    def process(self, row: Row, ctx: ProcessContext) -> Iterable[Any] | None:
        """Yield (or return a list of) results for the row; None stands for none."""
        raise NotImplementedError(f"{type(self).__name__} needs a method process(self, row, ctx)")


class WindowProcess(Function):
    """A function of the rows of a key and window: ``k.window(...).process(MyWindowProcess(), schema)``."""

    def process(self, rows: list[Row], ctx: ProcessContext) -> Iterable[Any] | None:
        """Yield (or return a list of) results; the rows are in the order in which they came, those of a sliding window slide by
        slide. ``ctx.key``, ``ctx.window_start`` and ``ctx.window_end`` say whose they are."""
        raise NotImplementedError(f"{type(self).__name__} needs a method process(self, rows, ctx)")


class CoProcess(KeyedFunction):
    """A function of two inputs: ``left.connect(right).process(MyCoProcess(), schema)``.

    When both are keyed, state belongs to the key, whichever side brings it.
    """

    def process_left(self, row: Row, ctx: ProcessContext) -> Iterable[Any] | None:
        """Yield (or return a list of) results for a row of the left input; None stands for none."""
        raise NotImplementedError(f"{type(self).__name__} needs a method process_left(self, row, ctx)")

    def process_right(self, row: Row, ctx: ProcessContext) -> Iterable[Any] | None:
        """The same for a row of the right one."""
        raise NotImplementedError(f"{type(self).__name__} needs a method process_right(self, row, ctx)")


class BroadcastProcess(KeyedFunction):
    """A function whose second input every subtask gets: ``s.connect(rules.broadcast()).process(MyProcess(), schema)``.

    What it has to remember of those goes into a ``cw.BroadcastState``. When the first input is keyed, state and timers belong
    to its keys.
    """

    def process(self, row: Row, ctx: ProcessContext) -> Iterable[Any] | None:
        """Yield (or return a list of) results for a row of the first input; broadcast state can be read here."""
        raise NotImplementedError(f"{type(self).__name__} needs a method process(self, row, ctx)")

    def process_broadcast(self, row: Row, ctx: ProcessContext) -> Iterable[Any] | None:
        """The same for a broadcast row; broadcast state is written here, and there is no key."""
        raise NotImplementedError(f"{type(self).__name__} needs a method process_broadcast(self, row, ctx)")


def checked_instance(method: str, fn: Any, wanted: type[Function], needed: Sequence[str] = ("process",)) -> Any:
    """``fn`` or, of a class, an instance; ConfigError if it is no ``wanted`` or lacks a method that is ``needed``, or has a
    state that nothing there can write."""
    if isinstance(fn, type) and issubclass(fn, wanted):
        try:
            fn = fn()
        except TypeError as error:
            raise ConfigError(
                f"{method}: {fn.__name__} cannot be made without arguments ({error}); pass one."
            ) from error
    if not isinstance(fn, wanted):
        raise ConfigError(f"{method}: {fn!r} is not a cw.{wanted.__name__}.")
    _check_declarations(method, type(fn), wanted)
    for each in needed:
        if getattr(type(fn), each) is getattr(wanted, each):
            raise ConfigError(f"{method}: {type(fn).__name__} needs a method {each}(self, row, ctx).")
    timed = ["on_timer"] if issubclass(wanted, KeyedFunction) else []
    check_methods(method, fn, wanted, ["open", *needed, *timed, "close"])
    if wanted is not BroadcastProcess and (states := declared(type(fn), BroadcastState)):
        raise ConfigError(
            f"{method}: {type(fn).__name__}.{next(iter(states))} is a BroadcastState, which nothing can write here: it is filled "
            f"in process_broadcast of a cw.BroadcastProcess, s.connect(other.broadcast()).process(...)."
        )
    return fn


def _check_declarations(method: str, function: type[Function], wanted: type[Function]) -> None:
    """What nobody would be told of later: no state at all where one is meant, and one in the place of a method."""
    for name, value in declared(function, type).items():
        if issubclass(value, StateDeclaration | SideOutput) and value.__module__.startswith("cutwater."):
            raise ConfigError(
                f"{method}: {function.__name__}.{name} is the class cw.{value.__name__} itself, which belongs to no key; write "
                f"{name} = cw.{value.__name__}(...)."
            )
    for name in [*declared(function, StateDeclaration), *declared(function, SideOutput)]:
        if hasattr(wanted, name):
            raise ConfigError(
                f"{method}: {function.__name__}.{name} stands where a cw.{wanted.__name__} has its {name}(); choose another name."
            )


def refuse_keyed_state(method: str, fn: Function) -> None:
    """Where there is no key."""
    if states := declared_states(type(fn)):
        raise ConfigError(
            f"{method}: {type(fn).__name__}.{next(iter(states))} is state by key, and there is no key here: write key_by before, "
            f"and use a cw.KeyedProcess, or a cw.CoProcess on two keyed streams."
        )
