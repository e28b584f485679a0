"""Which time the records of side outputs have: that of the input they come from."""

from collections.abc import Callable
from typing import Any

import pytest

import cutwater as cw
from cutwater.flow.event_time import EventTime
from cutwater.keyed_stream import KeyedStream
from cutwater.stream import Stream

EVENT = "k string, ts long, window_end timestamp"
TS = EventTime(("ts",))


class Own(cw.Process):
    kept = cw.SideOutput("kept", "ts long")
    other_type = cw.SideOutput("other type", "ts timestamp")
    dropped = cw.SideOutput("dropped", "k string")

    def process(self, row: Any, ctx: Any) -> Any:
        yield (row.k,)


class OwnKeyed(cw.KeyedProcess):
    kept = cw.SideOutput("kept", "ts long")

    def process(self, row: Any, ctx: Any) -> Any:
        yield (row.k,)


class OwnOfTwo(cw.CoProcess):
    first = cw.SideOutput("first", "ts long")
    second = cw.SideOutput("second", "at long")

    def process_left(self, row: Any, ctx: Any) -> Any:
        yield (row.k,)

    def process_right(self, row: Any, ctx: Any) -> Any:
        yield (row.k,)


class OwnOfWindows(cw.WindowProcess):
    result = cw.SideOutput("result", "k string, window_end timestamp")
    row = cw.SideOutput("row", "k string, ts long")

    def process(self, rows: list[Any], ctx: Any) -> Any:
        yield (len(rows),)


class AddUp(cw.AggregateFunction):
    accumulator_type = "long"
    result_type = "long"

    def create(self) -> Any:
        return 0

    def add(self, accumulator: Any, row: Any) -> Any:
        return accumulator + 1

    def merge(self, a: Any, b: Any) -> Any:
        return a + b

    def result(self, accumulator: Any) -> Any:
        return accumulator


def events(env: cw.Environment, schema: str = EVENT, column: str = "ts") -> KeyedStream:
    return env.read(cw.from_rows([], schema)).with_timestamps(column).key_by("k")


@pytest.fixture
def env() -> cw.Environment:
    return cw.Environment()


@pytest.mark.parametrize(
    "told",
    [
        lambda k: k.window(cw.tumbling("5s")).agg(n=cw.count()),
        lambda k: k.window(cw.tumbling("5s")).agg(n=cw.count_distinct("ts")),
        lambda k: k.window(cw.tumbling("5s")).agg(n=AddUp()),
        lambda k: k.window(cw.session("5s")).agg(n=cw.count()),
        lambda k: k.window(cw.sliding("5s", "1s")).process(OwnOfWindows, "n long"),
    ],
)
def test_late_records_of_windows_have_the_time_of_the_input_whatever_other_columns_are_called(
    env: cw.Environment, told: Callable[[KeyedStream], Stream]
) -> None:
    late = told(events(env)).side_output("late")
    assert late._time == TS
    late.key_by("k").window(cw.tumbling("5s")).agg(n=cw.count())


@pytest.mark.parametrize(
    "join", [lambda a, b: a.join(b, within="1s"), lambda a, b: a.window(cw.tumbling("1s")).join(b)]
)
def test_late_records_of_joins_have_the_time_of_their_own_side(
    env: cw.Environment, join: Callable[..., Stream]
) -> None:
    both = "k string, ts long, at long"
    told = join(events(env, both, "ts"), events(env, both, "at"))
    assert told.side_output("late")._time == TS
    assert told.side_output("late_right")._time == EventTime(("at",))


def test_own_side_outputs_keep_the_time_with_its_column_though_the_main_output_drops_it(env: cw.Environment) -> None:
    timed = env.read(cw.from_rows([], EVENT)).with_timestamps("ts")
    told = timed.process(Own, "k string")
    assert [told.side_output(tag)._time for tag in ("kept", "other type", "dropped")] == [TS, None, None]
    assert timed.key_by("k").process(OwnKeyed, "k string").side_output("kept")._time == TS


def test_own_side_outputs_of_two_inputs_keep_the_time_of_the_one_whose_column_they_have(env: cw.Environment) -> None:
    left, right = events(env), events(env, "k string, at long", "at")
    told = left.connect(right).process(OwnOfTwo, "k string")
    assert told.side_output("first")._time == TS
    assert told.side_output("second")._time == EventTime(("at",))


@pytest.mark.parametrize("windows", [cw.tumbling("5s"), cw.session("5s")])
def test_own_side_outputs_of_windows_have_the_time_of_rows_or_of_results(env: cw.Environment, windows: Any) -> None:
    told = events(env, "k string, ts long").window(windows).process(OwnOfWindows, "n long")
    assert told.side_output("row")._time == TS
    assert told.side_output("result")._time == EventTime(("window_end",), -1)


def test_a_column_of_the_input_is_not_taken_for_the_end_of_a_window(env: cw.Environment) -> None:
    told = events(env).window(cw.tumbling("5s")).process(OwnOfWindows, "n long")
    assert told.side_output("result")._time is None
