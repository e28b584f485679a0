"""Two streams that one function reads."""

from typing import NoReturn

from cutwater.arguments import methods_take_no_others
from cutwater.errors import ConfigError
from cutwater.functions import BroadcastProcess, CoProcess, Function, checked_instance, refuse_keyed_state
from cutwater.graph.logical import Exchange
from cutwater.keyed_stream import KeyedStream
from cutwater.operators.keyed_process import KeyedProcessOperator
from cutwater.operators.operator import Operator
from cutwater.operators.process import BROADCAST, FunctionInput, ProcessOperator
from cutwater.pipeline import Upstream
from cutwater.schema import SchemaLike
from cutwater.stream import Stream, add_operator, time_kept


@methods_take_no_others
class ConnectedStreams:
    """``left.connect(right)``: keyed when both are, or when the left one is and the right one is broadcast."""

    def __init__(self, left: Stream | KeyedStream, right: Stream | KeyedStream) -> None:
        if not isinstance(right, Stream | KeyedStream):
            raise ConfigError(f"connect: {right!r} is not a stream.")
        if left._env is not right._env:
            raise ConfigError("connect: the streams belong to different environments.")
        self._left = left
        self._right = right
        self._broadcasts = isinstance(right, Stream) and all(up.exchange is Exchange.BROADCAST for up in right._inputs)
        if not self._broadcasts and isinstance(left, KeyedStream) is not isinstance(right, KeyedStream):
            raise ConfigError(
                "connect: one of the streams is keyed and the other is not; write key_by on both, or on neither, or connect to "
                "other.broadcast()."
            )

    def __getattr__(self, name: str) -> NoReturn:
        """Two streams are no stream before a function has read both."""
        if name.startswith("_") or not (hasattr(Stream, name) or hasattr(KeyedStream, name)):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise ConfigError(f"{name} cannot stand behind connect: write it behind process, or before connect.")

    def process(self, fn: CoProcess | BroadcastProcess, schema: SchemaLike) -> Stream:
        """An own function: a ``cw.CoProcess`` or, when the other stream is broadcast, a ``cw.BroadcastProcess``."""
        if self._broadcasts:
            methods = ("process", BROADCAST)
            kind: type[Function] = BroadcastProcess
        else:
            methods = ("process_left", "process_right")
            kind = CoProcess
        instance = self._left._env.own("process", checked_instance("process", fn, kind, methods))
        sides = (self._left, self._right)
        own = [
            FunctionInput(method, side._time, side._columns if isinstance(side, KeyedStream) else ())
            for method, side in zip(methods, sides, strict=True)
        ]
        operator: Operator
        if isinstance(self._left, KeyedStream):
            operator = KeyedProcessOperator(instance, schema, own)
        else:
            refuse_keyed_state("process", instance)
            operator = ProcessOperator(instance, schema, own)
        inputs = tuple(up for port, side in enumerate(sides) for up in _into(side, port))
        stream = add_operator(self._left._env, "process", operator, inputs, sides)
        stream._time = time_kept(sides, stream.schema)
        return stream


def _into(side: Stream | KeyedStream, port: int) -> tuple[Upstream, ...]:
    if isinstance(side, KeyedStream):
        return tuple(Upstream(up.draft, up.tag, Exchange.KEY_GROUP, side._columns, port) for up in side._inputs)
    return tuple(Upstream(up.draft, up.tag, up.exchange, up.key, port) for up in side._inputs)
