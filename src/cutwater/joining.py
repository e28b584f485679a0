"""How two keyed streams become one."""

from typing import TYPE_CHECKING

from cutwater.errors import ConfigError
from cutwater.flow.event_time import EventTime
from cutwater.graph.logical import Exchange
from cutwater.operators.join import EquiJoin
from cutwater.pipeline import Upstream
from cutwater.stream import Stream, add_operator

if TYPE_CHECKING:
    from cutwater.keyed_stream import KeyedStream


def both_times(where: str, left: "KeyedStream", right: "KeyedStream") -> tuple[EventTime, EventTime]:
    if left._time is None or right._time is None:
        side = "left" if left._time is None else "right"
        raise ConfigError(
            f"{where}: the {side} stream has no event time here. Name its column with s.with_timestamps('ts', ...) before key_by, "
            f"and keep that column up to here."
        )
    return left._time, right._time


def joined(left: "KeyedStream", right: "KeyedStream", operator: EquiJoin) -> Stream:
    inputs = tuple(
        Upstream(up.draft, up.tag, Exchange.KEY_GROUP, side._columns, port)
        for port, side in enumerate((left, right))
        for up in side._inputs
    )
    stream = add_operator(left._env, "join", operator, inputs, [left, right])
    if left._time is not None and right._time is not None and left._time.shift == right._time.shift:
        columns = (*left._time.columns, *map(operator.right_name, right._time.columns))
        stream._time = EventTime(columns, left._time.shift)
    return stream
