"""Durations of event time, windows and state are counted in whole milliseconds; what is none is refused by name."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import cutwater as cw
from cutwater.duration import whole_milliseconds


def keyed() -> Any:
    env = cw.Environment(checkpointing=None)
    return env.read(cw.from_rows([], "k string, ts long"), uid="in").with_timestamps("ts").key_by("k")


def timed(**arguments: Any) -> Any:
    env = cw.Environment(checkpointing=None)
    return env.read(cw.from_rows([], "k string, ts long"), uid="in").with_timestamps("ts", **arguments)


COUNTED_IN_MILLISECONDS: dict[str, Callable[[Any], Any]] = {
    "ttl": lambda given: cw.ValueState("long", ttl=given),
    "size": cw.tumbling,
    "slide": lambda given: cw.sliding("1s", given),
    "gap": cw.session,
    "offset": lambda given: cw.tumbling("1s", offset=given),
    "allowed_lateness": lambda given: keyed().window(cw.tumbling("1s"), allowed_lateness=given),
    "early": lambda given: keyed().window(cw.tumbling("1s"), early=given),
    "within": lambda given: (one := keyed()).join(one, within=given),
    "out_of_orderness": lambda given: timed(out_of_orderness=given),
    "idle_after": lambda given: timed(idle_after=given),
}
MAY_BE_ZERO = ["offset", "allowed_lateness", "within", "out_of_orderness"]


@pytest.mark.parametrize("given", ["0.4ms", "1.5ms", "0.0005s", "0.0001ms", timedelta(microseconds=1001)])
@pytest.mark.parametrize("argument", COUNTED_IN_MILLISECONDS)
def test_what_is_no_whole_number_of_milliseconds_is_refused(argument: str, given: Any) -> None:
    with pytest.raises(cw.ConfigError, match=f"{argument}=.*: .* whole milliseconds"):
        COUNTED_IN_MILLISECONDS[argument](given)


@pytest.mark.parametrize("given", [-5, timedelta(seconds=-1)])
@pytest.mark.parametrize("argument", MAY_BE_ZERO)
def test_where_zero_is_allowed_a_negative_one_is_not_asked_to_be_greater_than_zero(argument: str, given: Any) -> None:
    with pytest.raises(cw.ConfigError, match=f"{argument}=.*: .* zero or more"):
        COUNTED_IN_MILLISECONDS[argument](given)


@pytest.mark.parametrize("given", ["0s", -5, timedelta(seconds=-1)])
@pytest.mark.parametrize("argument", [each for each in COUNTED_IN_MILLISECONDS if each not in MAY_BE_ZERO])
def test_elsewhere_it_is(argument: str, given: Any) -> None:
    with pytest.raises(cw.ConfigError, match=f"{argument}=.*: .* greater than zero"):
        COUNTED_IN_MILLISECONDS[argument](given)


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ("1.1s", 1100),
        ("0.001s", 1),
        ("2.0ms", 2),
        ("1.15 s", 1150),
        ("0.5 min", 30_000),
        (timedelta(days=2), 172_800_000),
    ],
)
def test_fractions_of_longer_units_are_whole_milliseconds_too(given: Any, milliseconds: int) -> None:
    assert whole_milliseconds("x", given) == milliseconds


def test_the_longest_timedelta_is_too_long_and_not_too_fine() -> None:
    with pytest.raises(cw.ConfigError, match=r"is longer than any job runs\. Write at most '999999999 days'"):
        timed(out_of_orderness=timedelta.max)
