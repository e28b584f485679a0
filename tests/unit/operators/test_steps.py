"""A step ends by its number of items or by the clock, whichever comes first."""

from collections.abc import Callable
from typing import Any

import pytest

import cutwater as cw
from cutwater.operators.steps import Steps
from cutwater.rows import batch_of
from cutwater.state.memory import Memory
from cutwater.testing.clock import ManualClock
from tests.unit.operators.collecting import Collected, opened
from tests.unit.operators.test_window_steps import Rows

A_CALL = 0.01
CALLS_A_STEP = 2
KEYS = 9
clock = ManualClock()


def _steps() -> Steps:
    return Steps(clock.monotonic, CALLS_A_STEP * A_CALL - A_CALL / 2)


def test_steps_of_fast_items_have_their_most_and_the_last_one_the_rest() -> None:
    assert [list(step) for step in Steps().of(range(7), 3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [list(step) for step in Steps().of(range(6), 3)] == [[0, 1, 2], [3, 4, 5]]
    assert list(Steps().of([], 3)) == []


def test_a_step_of_slow_items_ends_before_the_next_one_is_taken() -> None:
    items = iter(range(4))
    steps = _steps().of(items, 100)
    for _ in next(steps):
        clock.advance(A_CALL)
    assert list(items) == [2, 3], "nobody has looked at those"


def test_an_item_that_takes_longer_than_a_step_is_one() -> None:
    sizes = []
    for step in _steps().of(range(3), 100):
        sizes.append(0)
        for _ in step:
            clock.advance(1)
            sizes[-1] += 1
    assert sizes == [1, 1, 1]


def test_small_items_are_done_together_as_long_as_that_is_short() -> None:
    together = _steps().together(most=5)
    numbers = []
    for a_call in (0, 0, 0, 0, A_CALL, A_CALL, A_CALL, 0):
        numbers.append(together.number)
        together.begin()
        clock.advance(together.number * a_call)
        together.end(together.number)
    assert numbers == [1, 2, 4, 5, 5, 1, 1, 1]
    assert together.number == 2


class Reminders(cw.KeyedProcess):
    def process(self, row: Any, ctx: Any) -> Any:
        ctx.timers.event_time(50)
        ctx.timers.processing_time(50)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        clock.advance(A_CALL)
        yield (ctx.key,)


def _told(rows: Any, ctx: Any) -> Any:
    clock.advance(A_CALL)
    return [(ctx.key,)]


class SlowResult(Rows):
    def result(self, accumulator: int) -> int:
        clock.advance(A_CALL)
        return accumulator


SLOW: dict[str, Callable[[cw.KeyedStream], cw.Stream]] = {
    "timers": lambda keyed: keyed.process(Reminders, "k long"),
    "sessions": lambda keyed: keyed.window(cw.session("1ms")).process(_told, "k long"),
    "late sessions": lambda keyed: keyed.window(cw.session("1ms"), allowed_lateness="1s").process(_told, "k long"),
    "own aggregate": lambda keyed: keyed.window(cw.session("1ms")).agg(n=SlowResult()),
    "by the clock": lambda keyed: keyed.window(cw.session("1ms"), time="processing").process(_told, "k long"),
    "early": lambda keyed: keyed.window(cw.session("1s"), early="1ms").process(_told, "k long"),
}


@pytest.mark.parametrize(
    ("which", "by_clock"),
    [
        *((which, False) for which in ("timers", "sessions", "late sessions", "own aggregate")),
        *((which, True) for which in ("timers", "by the clock", "early")),
    ],
)
def test_a_slow_function_makes_steps_short_and_is_called_for_each_key_once(which: str, by_clock: bool) -> None:
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], "k long, ts long"), uid="in").with_timestamps("ts")
    operator, out = opened(SLOW[which](stream.key_by("k")), Memory(), steps=_steps()), Collected()
    operator.process(batch_of([(key, 0) for key in range(KEYS)], stream.schema, "test"), 0, out)
    began, longest = clock.monotonic(), 0.0
    for _ in operator.on_processing_time(100, out) if by_clock else operator.on_watermark(100, out):
        longest = max(longest, clock.monotonic() - began)
        began = clock.monotonic()
    assert longest == pytest.approx(CALLS_A_STEP * A_CALL)
    assert len({row[0] for row in out.rows()}) == len(out.rows()) == KEYS
