"""Python values as an Arrow array, and nothing lost on the way.

``pa.array`` cuts 1.5 to 1, a string into a list of letters and a datetime to its day, takes 5 for a moment (of which unit?),
bytes for a text and True for 1.0, and makes null of a struct's field that is missing or misspelt, at any depth. What it would
change is looked for first, column by column. A moment without a time zone is one of UTC, here as in files and in state.
"""

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from numbers import Number
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from cutwater.plain_values import TEXT, plain_value

_NULL = type(None)

Check = Callable[[Sequence[Any]], None]
"""One of ``MISFITS`` (without naming the place) when a value would be changed."""


MISFITS = (TypeError, ValueError, KeyError, OverflowError, pa.ArrowException)
"""What says that a value does not fit."""


def exact_array(values: Sequence[Any], data_type: pa.DataType) -> "pa.Array[Any]":
    """``pa.array``; one of ``MISFITS`` for a value that does not fit as it is.

    Values of numpy, Arrow and Polars, and tuples beside dicts for structs, count as the plain values that they stand for.
    """
    try:
        return _exact_array(values, data_type)
    except MISFITS:
        return _exact_array([plain_value(value, data_type) for value in values], data_type)


def _exact_array(values: Sequence[Any], data_type: pa.DataType) -> "pa.Array[Any]":
    check = _check_of(data_type)
    if check is not None:
        check(values)
        if (
            isinstance(data_type, pa.StructType)
            and dict in (kinds := set(map(type, values)) - {_NULL})
            and len(kinds) > 1
        ):
            # Arrow takes either dicts or tuples in one column; deeper inside, plain values make them the same
            names = [field.name for field in data_type]
            values = [v if v is None or isinstance(v, tuple) else tuple(map(v.get, names)) for v in values]
    return pa.array(values, data_type)


@lru_cache(maxsize=4096)
def _check_of(data_type: pa.DataType) -> Check | None:
    """None when ``pa.array`` itself refuses whatever does not fit."""
    t = pa.types
    match data_type:
        case pa.StructType():
            return _structs(data_type)
        case pa.MapType():
            return _maps(_check_of(data_type.key_type), _check_of_field(data_type.item_field))
        case pa.ListType() | pa.LargeListType() | pa.FixedSizeListType():
            return _lists(_check_of_field(data_type.value_field))
        case pa.TimestampType():
            return _timestamps(data_type)
        case _ if t.is_integer(data_type):
            return _whole_numbers
        case _ if t.is_floating(data_type):
            return _floats(data_type)
        case _ if t.is_date(data_type):
            return _dates
        case _ if t.is_string(data_type) or t.is_large_string(data_type):
            return _only("a string is needed", str)
        case _ if t.is_binary(data_type) or t.is_large_binary(data_type):
            return _only("bytes are needed", bytes, bytearray, memoryview)
        case _:
            return None


def _check_of_field(field: "pa.Field[Any]") -> Check | None:
    """The same for what stands in a container, which may be NOT NULL."""
    inner = _check_of(field.type)
    if field.nullable:
        return inner

    def check(values: Sequence[Any]) -> None:
        if _NULL in set(map(type, values)):
            raise ValueError(f"its field {field.name!r} is NOT NULL")
        if inner is not None:
            inner(values)

    return check


def _whole_numbers(values: Sequence[Any]) -> None:
    kinds = set(map(type, values))
    if np.bool_ in kinds:
        raise TypeError("a number is needed")  # a bool is refused by Arrow itself
    if any(not issubclass(kind, int | np.integer) for kind in kinds - {_NULL}):
        for value in values:
            if not isinstance(value, Number | None):
                raise TypeError("a whole number is needed")
            if value is not None and int(value) != value:  # type: ignore[call-overload]  # Decimals and numpy's have it
                raise ValueError(f"{value!r} is not a whole number")


def _only(needed: str, *kinds: type) -> Check:
    def check(values: Sequence[Any]) -> None:
        if not all(issubclass(kind, kinds) for kind in set(map(type, values)) - {_NULL}):
            raise TypeError(needed)

    return check


def _floats(data_type: pa.DataType) -> Check:
    def numbers(values: Sequence[Any]) -> None:
        kinds = set(map(type, values)) - {_NULL}
        if bool in kinds or not all(issubclass(kind, float | int | np.floating | np.integer) for kind in kinds):
            raise TypeError("a number is needed")

    if data_type.bit_width == 64:
        return numbers
    narrow = np.float32 if data_type.bit_width == 32 else np.float16

    def narrow_numbers(values: Sequence[Any]) -> None:
        numbers(values)
        wide = pa.array(values, pa.float64()).to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):
            beyond = np.isfinite(wide) & np.isinf(wide.astype(narrow))
        if beyond.any():
            raise ValueError(f"{float(wide[beyond][0])!r} is out of range")

    return narrow_numbers


_days = _only("a datetime.date is needed", dt.date, np.datetime64)
_moments = _only("a datetime.datetime is needed", dt.datetime, np.datetime64)


def _dates(values: Sequence[Any]) -> None:
    _days(values)
    if any(issubclass(kind, dt.datetime) for kind in set(map(type, values))):
        for value in values:
            if isinstance(value, dt.datetime) and value.time() != dt.time():
                raise ValueError(f"{value!r} has a time of day, a date has none")


def _timestamps(data_type: pa.TimestampType) -> Check:
    unit: str = data_type.unit
    zoned, coarse, finest = data_type.tz is not None, unit in ("s", "ms"), unit == "ns"

    def check(values: Sequence[Any]) -> None:
        _moments(values)
        kinds = set(map(type, values))
        if not zoned and any(issubclass(kind, dt.datetime) for kind in kinds):
            moments = values if kinds == {dt.datetime} else [v for v in values if isinstance(v, dt.datetime)]
            if any(zone is not None for zone in set(map(attrgetter("tzinfo"), moments))):
                raise ValueError("it must not have a time zone")
        if not finest and any(hasattr(kind, "nanosecond") for kind in kinds):  # pandas.Timestamp
            _refuse_nanoseconds(values)
        if coarse and any(issubclass(kind, dt.datetime) for kind in kinds):
            moments = [v for v in values if isinstance(v, dt.datetime)]
            pa.array(moments, pa.timestamp("us", data_type.tz)).cast(data_type)

    return check


def _refuse_nanoseconds(values: Sequence[Any]) -> None:
    if any(getattr(value, "nanosecond", 0) for value in values):
        raise ValueError("it has nanoseconds")


def _lists(element: Check | None) -> Check:
    def check(values: Sequence[Any]) -> None:
        kinds = set(map(type, values))
        if any(issubclass(kind, TEXT) for kind in kinds):
            raise TypeError("a list is needed")
        if element is not None:
            element(list(chain.from_iterable(_without_nulls(values, kinds))))

    return check


def _maps(key: Check | None, item: Check | None) -> Check:
    def check(values: Sequence[Any]) -> None:
        found = _without_nulls(values, set(map(type, values)))
        pairs = list(chain.from_iterable(map(_pairs, found)))
        if key is not None:
            key([pair[0] for pair in pairs])
        if item is not None:
            item([pair[1] for pair in pairs])

    return check


def _pairs(value: Any) -> Collection[tuple[Any, Any]]:
    """Of a dict, or of a list of pairs: the only way to write a map whose keys are lists or structs."""
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, TEXT) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
        raise TypeError("a dict is needed")
    return value  # type: ignore[no-any-return]


def _structs(data_type: pa.StructType) -> Check:
    names = tuple(field.name for field in data_type)
    checks = [_check_of_field(field) for field in data_type]

    def check(values: Sequence[Any]) -> None:
        kinds = set(map(type, values))
        columns = _columns(_without_nulls(values, kinds), kinds - {_NULL}, names)
        for part, column in zip(checks, columns, strict=False) if any(checks) else ():
            if part is not None:
                part(column)

    return check


def _columns(found: Sequence[Any], kinds: Iterable[type], names: tuple[str, ...]) -> Iterable[Sequence[Any]]:
    """Of rows, tuples and dicts that have exactly these fields; ValueError or TypeError for others."""
    if all(issubclass(kind, dict) for kind in kinds) and set(map(len, found)) == {len(names)}:
        with suppress(KeyError):
            # each column by a loop in C: dicts are what nested JSON comes as
            return [list(map(itemgetter(name), found)) for name in names]
    if any(not issubclass(kind, tuple) for kind in kinds):
        wanted = frozenset(names)
        found = [value if isinstance(value, tuple) else _in_order(value, names, wanted) for value in found]
    if wrong := set(map(len, found)) - {len(names)}:
        raise ValueError(f"it has {min(wrong)} values, the fields are {', '.join(names)}")
    return zip(*found, strict=True)


def _in_order(value: Any, names: tuple[str, ...], wanted: frozenset[str]) -> tuple[Any, ...]:
    if not isinstance(value, dict | Mapping):  # dict first: asking an abstract class costs more
        raise TypeError(f"a row, tuple or dict of {', '.join(names)} is needed")
    if value.keys() != wanted:
        raise ValueError(f"its fields are {', '.join(map(str, value))}, needed are {', '.join(names)}")
    return tuple(value[name] for name in names)


def _without_nulls(values: Sequence[Any], kinds: Iterable[type]) -> Sequence[Any]:
    return [value for value in values if value is not None] if _NULL in kinds else values
