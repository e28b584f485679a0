"""Python values as an Arrow array, and nothing lost on the way.

``pa.array`` cuts 1.5 to 1, a string into a list of letters and a datetime to its day, and makes null of a struct's field that
is missing or misspelt, at any depth. What it would change is looked for first, column by column.
"""

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

_NULL = type(None)
_TEXT = (str, bytes, bytearray, memoryview)

Check = Callable[[Sequence[Any]], None]
"""TypeError, ValueError or an error of Arrow (without naming the place) when a value would be changed."""


def exact_array(values: Sequence[Any], data_type: pa.DataType) -> "pa.Array[Any]":
    """``pa.array``; TypeError, ValueError, OverflowError or an error of Arrow for a value that does not fit as it is."""
    check = _check_of(data_type)
    if check is not None:
        check(values)
        if isinstance(data_type, pa.StructType) and dict in (kinds := set(map(type, values))) and len(kinds) > 1:
            # Arrow takes either dicts or tuples in one column, users may mix them
            names = [field.name for field in data_type]
            values = [tuple(map(v.get, names)) if isinstance(v, Mapping) else v for v in values]
    return pa.array(values, data_type)


@lru_cache(maxsize=4096)
def _check_of(data_type: pa.DataType) -> Check | None:
    """None when ``pa.array`` itself refuses whatever does not fit."""
    t = pa.types
    match data_type:
        case pa.StructType():
            return _structs(data_type)
        case pa.MapType():
            return _maps(_check_of(data_type.key_type), _check_of(data_type.item_type))
        case pa.ListType() | pa.LargeListType() | pa.FixedSizeListType():
            return _lists(_check_of(data_type.value_type))
        case pa.TimestampType():
            return _timestamps(data_type)
        case _ if t.is_integer(data_type):
            return _whole_numbers
        case _ if t.is_floating(data_type) and data_type.bit_width < 64:
            return _narrow_floats(np.float32 if data_type.bit_width == 32 else np.float16)
        case _ if t.is_date(data_type):
            return _dates
        case _:
            return None


def _whole_numbers(values: Sequence[Any]) -> None:
    if any(not issubclass(kind, int | np.integer) for kind in set(map(type, values)) - {_NULL}):
        for value in values:
            if value is not None and int(value) != value:
                raise ValueError(f"{value!r} is not a whole number")


def _narrow_floats(narrow: type) -> Check:
    def check(values: Sequence[Any]) -> None:
        wide = pa.array(values, pa.float64()).to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):
            beyond = np.isfinite(wide) & np.isinf(wide.astype(narrow))
        if beyond.any():
            raise ValueError(f"{float(wide[beyond][0])!r} is out of range")

    return check


def _dates(values: Sequence[Any]) -> None:
    if any(issubclass(kind, dt.datetime) for kind in set(map(type, values))):
        for value in values:
            if isinstance(value, dt.datetime) and value.time() != dt.time():
                raise ValueError(f"{value!r} has a time of day, a date has none")


def _timestamps(data_type: pa.TimestampType) -> Check:
    zoned, coarse = data_type.tz is not None, data_type.unit in ("s", "ms")

    def check(values: Sequence[Any]) -> None:
        kinds = set(map(type, values))
        if not zoned and any(issubclass(kind, dt.datetime) for kind in kinds):
            moments = values if kinds == {dt.datetime} else [v for v in values if isinstance(v, dt.datetime)]
            if any(zone is not None for zone in set(map(attrgetter("tzinfo"), moments))):
                raise ValueError("it must not have a time zone")
        if any(issubclass(kind, float) for kind in kinds):
            raise TypeError("a datetime is needed")
        if coarse and any(issubclass(kind, dt.datetime) for kind in kinds):
            moments = [v for v in values if isinstance(v, dt.datetime)]
            pa.array(moments, pa.timestamp("us", data_type.tz)).cast(data_type)

    return check


def _lists(element: Check | None) -> Check:
    def check(values: Sequence[Any]) -> None:
        kinds = set(map(type, values))
        if any(issubclass(kind, _TEXT) for kind in kinds):
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
    if isinstance(value, _TEXT) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
        raise TypeError("a dict is needed")
    return value  # type: ignore[no-any-return]


def _structs(data_type: pa.StructType) -> Check:
    fields = list(data_type)
    names = tuple(field.name for field in fields)
    checks = [_check_of(field.type) for field in fields]
    looked_at = any(checks) or not all(field.nullable for field in fields)

    def check(values: Sequence[Any]) -> None:
        kinds = set(map(type, values))
        found = _without_nulls(values, kinds)
        if any(not issubclass(kind, tuple) for kind in kinds - {_NULL}):
            found = [value if isinstance(value, tuple) else _in_order(value, names) for value in found]
        if wrong := set(map(len, found)) - {len(names)}:
            raise ValueError(f"it has {min(wrong)} values, the fields are {', '.join(names)}")
        if looked_at:
            for field, part, column in zip(fields, checks, zip(*found, strict=True), strict=False):
                if not field.nullable and any(value is None for value in column):
                    raise ValueError(f"its field {field.name!r} is NOT NULL")
                if part is not None:
                    part(column)

    return check


def _in_order(value: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    if not isinstance(value, Mapping):
        raise TypeError(f"a row, tuple or dict of {', '.join(names)} is needed")
    if value.keys() != set(names):
        raise ValueError(f"its fields are {', '.join(map(str, value))}, needed are {', '.join(names)}")
    return tuple(value[name] for name in names)


def _without_nulls(values: Sequence[Any], kinds: Iterable[type]) -> Sequence[Any]:
    return [value for value in values if value is not None] if _NULL in kinds else values
