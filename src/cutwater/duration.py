"""Durations as users write them: ``"500ms"``, ``"5 seconds"``, ``"2 min"`` or a ``timedelta``."""

import math
import re
from datetime import timedelta

from cutwater.errors import ConfigError

Duration = str | timedelta

_SECONDS_PER_UNIT = {
    "ms": 0.001, "millisecond": 0.001, "milliseconds": 0.001,
    "s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1,
    "m": 60, "min": 60, "mins": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hour": 3600, "hours": 3600,
    "d": 86400, "day": 86400, "days": 86400,
}  # fmt: skip
_MILLISECOND = timedelta(milliseconds=1)
_LONGEST = timedelta(days=timedelta.max.days)
_SPELLING = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def parse_duration(argument: str, value: object, *, allow_zero: bool = False) -> timedelta:
    """The duration that ``value`` means; ``argument`` is named in the error."""
    match value:
        case timedelta():
            duration = value
        case bool():
            raise _refusal(argument, value)
        case int() | float() if value < 0 or (value == 0 and not allow_zero):
            raise ConfigError(
                f"{argument}={value!r}: the duration must be {_least(allow_zero=allow_zero)} and have a unit. Write for example "
                f"{_written(argument)}='500ms' or {_written(argument)}='5 seconds'."
            )
        case int() | float() if math.isfinite(value):
            name = _written(argument)
            raise ConfigError(
                f"{argument}={value!r}: a bare number has no unit. Write {name}='{value}s' or {name}='{value}ms'."
            )
        case str():
            found = _SPELLING.fullmatch(value)
            if found is None or found[2].lower() not in _SECONDS_PER_UNIT:
                raise _refusal(argument, value)
            try:
                duration = timedelta(seconds=float(found[1]) * _SECONDS_PER_UNIT[found[2].lower()])
                if float(found[1]):
                    duration = max(duration, timedelta.resolution)  # so little is still more than nothing
            except OverflowError:
                raise _too_long(argument, value) from None
        case _:
            raise _refusal(argument, value)
    if duration < timedelta(0) or (duration == timedelta(0) and not allow_zero):
        raise ConfigError(f"{argument}={value!r}: the duration must be {_least(allow_zero=allow_zero)}.")
    return duration


def _written(argument: str) -> str:
    """In the user's program: ``ttl`` of "ValueState's ttl", ``transaction_timeout`` of "transaction_timeout of ..."."""
    return argument.partition(" of ")[0].rsplit(maxsplit=1)[-1]


def whole_milliseconds(argument: str, value: object, *, allow_zero: bool = False) -> int:
    """The same, where time is counted in milliseconds: part of one would be dropped, and a short duration become none."""
    duration = parse_duration(argument, value, allow_zero=allow_zero)
    if duration > _LONGEST:
        raise _too_long(argument, value)
    if duration % _MILLISECOND:
        raise ConfigError(
            f"{argument}={value!r}: the duration is counted in whole milliseconds. Write for example '1ms'."
        )
    return duration // _MILLISECOND


def spelled(milliseconds: int) -> str:
    """As a user would write it."""
    for unit, length in (("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if milliseconds % length == 0:
            return f"{milliseconds // length}{unit}"
    return f"{milliseconds}ms"


def _too_long(argument: str, value: object) -> ConfigError:
    return ConfigError(f"{argument}={value!r} is longer than any job runs. Write at most '{_LONGEST.days} days'.")


def _least(*, allow_zero: bool) -> str:
    return "zero or more" if allow_zero else "greater than zero"


def _refusal(argument: str, value: object) -> ConfigError:
    return ConfigError(
        f"{argument}={value!r} is not a duration. Write for example '500ms', '5 seconds', '2 min', or pass a timedelta."
    )
