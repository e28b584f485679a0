"""Values of row functions' state: checked and copied on the way in, copied on the way out, so that nobody shares them."""

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from cutwater.rows import Row, row_type

_UNITS = {"s": "a second", "ms": "a millisecond", "us": "a microsecond", "ns": "a nanosecond"}

Admit = Callable[[Any], Any]
"""The value as the table keeps it; TypeError or ValueError (without naming the place) if it does not fit."""


@lru_cache(maxsize=1024)
def admission(data_type: pa.DataType) -> Admit:
    """How values of this type are checked and brought into the form that a restore would give them as well."""
    t = pa.types
    match data_type:
        case pa.StructType():
            return _structs(data_type)
        case pa.MapType():
            return _maps(admission(data_type.key_type), _within(data_type.item_field))
        case pa.FixedSizeListType():
            return _lists_of(data_type.list_size, _lists(_within(data_type.value_field)))
        case pa.ListType() | pa.LargeListType():
            return _lists(_within(data_type.value_field))
        case _ if t.is_boolean(data_type):
            return _exactly(bool, np.bool_)
        case _ if t.is_integer(data_type):
            return _integers(data_type)
        case _ if t.is_floating(data_type):
            return _floats(data_type)
        case _ if t.is_decimal(data_type):
            return _decimals(data_type)
        case _ if t.is_string(data_type) or t.is_large_string(data_type):
            return _text
        case _ if t.is_binary(data_type) or t.is_large_binary(data_type):
            return _binary
        case _ if t.is_date(data_type):
            return _dates
        case _ if t.is_timestamp(data_type):
            return _timestamps(data_type)
        case _:
            return _as_arrow_takes_it(data_type)


@lru_cache(maxsize=1024)
def handing_out(data_type: pa.DataType) -> Callable[[Any], Any] | None:
    """How a kept value is copied for the user; None when it cannot be changed anyway."""
    match data_type:
        case pa.StructType():
            parts = [handing_out(field.type) for field in data_type]
            if not any(parts):
                return None
            kind = row_type(tuple(field.name for field in data_type))
            return _optional(
                lambda row: tuple.__new__(kind, [v if f is None else f(v) for v, f in zip(row, parts, strict=True)])
            )
        case pa.MapType():
            item = handing_out(data_type.item_type)
            return _optional(dict if item is None else lambda value: {k: item(v) for k, v in value.items()})
        case pa.ListType() | pa.LargeListType() | pa.FixedSizeListType():
            element = handing_out(data_type.value_type)
            return _optional(list if element is None else lambda value: [element(v) for v in value])
        case _:
            return None


def holds_list_or_map(data_type: pa.DataType) -> bool:
    """Such a value cannot be a key in a dict."""
    if isinstance(data_type, pa.StructType):
        return any(holds_list_or_map(field.type) for field in data_type)
    return pa.types.is_nested(data_type)


def several_values(values: Iterable[Any]) -> Iterable[Any]:
    """What a list may be extended by: not one value that can be gone through as well, which would be torn apart."""
    if isinstance(values, str | bytes | bytearray | memoryview | Mapping):
        raise TypeError(f"extend needs a list of values, not a {type(values).__name__}; one value is added by append")
    return values


def _optional(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else function(value)


def _exactly(kind: type, numpy_kind: type) -> Admit:
    def admit(value: Any) -> Any:
        if type(value) is kind:
            return value
        if isinstance(value, numpy_kind):
            return kind(value)
        raise TypeError(f"a {kind.__name__} is needed")

    return admit


def _integers(data_type: pa.DataType) -> Admit:
    low, high = _bounds(data_type)

    def admit(value: Any) -> Any:
        if type(value) is not int:
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise TypeError("a whole number is needed")
            value = int(value)
        if low <= value <= high:
            return value
        raise ValueError(f"allowed is {low} to {high}")

    return admit


def _bounds(data_type: pa.DataType) -> tuple[int, int]:
    bits = data_type.bit_width
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if pa.types.is_signed_integer(data_type) else (0, (1 << bits) - 1)


def _floats(data_type: pa.DataType) -> Admit:
    narrow = data_type.bit_width < 64
    to_narrow = np.float32 if data_type.bit_width == 32 else np.float16

    def admit(value: Any) -> Any:
        if type(value) is float:
            return kept(value) if narrow or value != value else value
        if isinstance(value, bool) or not isinstance(value, float | int | np.floating | np.integer):
            raise TypeError("a number is needed")
        admitted = kept(float(value))
        # Between two floats there are whole numbers, of which one would come back as another.
        if isinstance(value, int | np.integer) and int(admitted) != int(value):
            raise ValueError("no such number is exactly that; write float(...) if the nearest one will do")
        return admitted

    def kept(value: float) -> float:
        if narrow:
            with np.errstate(over="ignore"):
                rounded = float(to_narrow(value))
            if math.isinf(rounded) and not math.isinf(value):
                raise ValueError("it is out of range")
            value = rounded
        return value if value == value else math.nan  # the one that is found again as a map's key

    return admit


def _decimals(data_type: Any) -> Admit:
    before = max(0, data_type.precision - data_type.scale)

    def admit(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise TypeError("a decimal.Decimal or a whole number is needed")
        try:
            return pa.scalar(value, data_type).as_py()
        except pa.ArrowInvalid:
            raise ValueError(f"allowed are {before} digits before the point and {data_type.scale} behind it") from None

    return admit


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise TypeError("a string is needed")
    if not value.isascii():
        value.encode()  # a lone surrogate cannot be stored
    return str(value)


def _binary(value: Any) -> Any:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("bytes are needed")
    return bytes(value)


def _dates(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        if value.time() != dt.time():
            raise ValueError("it has a time of day, a date has none")
        return value.date()
    if not isinstance(value, dt.date):
        raise TypeError("a datetime.date is needed")
    return value


def _timestamps(data_type: Any) -> Admit:
    zoned = data_type.tz is not None

    def admit(value: Any) -> Any:
        if not isinstance(value, dt.datetime):
            raise TypeError("a datetime.datetime is needed")
        if value.tzinfo is not None and not zoned:
            raise ValueError("it must not have a time zone")
        # Arrow takes one without a zone for UTC.
        meant = value.replace(tzinfo=dt.UTC) if zoned and value.tzinfo is None else value
        return _unchanged(pa.scalar(value, data_type).as_py(), meant, data_type)

    return admit


def _as_arrow_takes_it(data_type: pa.DataType) -> Admit:
    def admit(value: Any) -> Any:
        if value is None:
            raise TypeError("a value is needed")
        kept = pa.scalar(value, data_type).as_py()
        return _unchanged(kept, value, data_type) if isinstance(value, dt.time | dt.timedelta) else kept

    return admit


def _unchanged(kept: Any, value: Any, data_type: Any) -> Any:
    """Arrow cuts off what is finer than the type's unit."""
    if kept != value:
        raise ValueError(f"it is finer than the type's unit, {_UNITS[data_type.unit]}; round it before")
    return kept


def _within(field: "pa.Field[Any]") -> Admit:
    """How what stands in a container is admitted: None too, unless the field is NOT NULL."""
    admit = admission(field.type)
    if field.nullable:
        return lambda value: None if value is None else admit(value)

    def admit_one(value: Any) -> Any:
        if value is None:
            raise ValueError(f"its field {field.name!r} is NOT NULL")
        return admit(value)

    return admit_one


def _lists_of(size: int, lists: Admit) -> Admit:
    def admit(value: Any) -> Any:
        admitted = lists(value)
        if len(admitted) != size:
            raise ValueError(f"it has {len(admitted)} values, needed are {size}")
        return admitted

    return admit


def _lists(element: Admit) -> Admit:
    def admit(value: Any) -> Any:
        if isinstance(value, str | bytes | bytearray | memoryview | Mapping):
            raise TypeError("a list is needed")
        return [element(v) for v in value]

    return admit


def _maps(key: Admit, item: Admit) -> Admit:
    def admit(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise TypeError("a dict is needed")
        return {key(k): item(v) for k, v in value.items()}

    return admit


def _structs(data_type: pa.StructType) -> Admit:
    names = tuple(field.name for field in data_type)
    parts = [_within(field) for field in data_type]
    kind = row_type(names)

    def admit(value: Any) -> Any:
        if isinstance(value, tuple) and len(value) == len(names):
            values = value
        elif isinstance(value, Mapping):
            if value.keys() != set(names):
                raise ValueError(f"the fields must be {', '.join(names)}")
            values = tuple(value[name] for name in names)
        else:
            raise TypeError(f"a row, tuple or dict of {', '.join(names)} is needed")
        return kind(part(v) for v, part in zip(values, parts, strict=True))

    return _plain_ones_first(data_type, kind, admit)


def _plain_ones_first(data_type: pa.StructType, kind: type[Row], admit: Admit) -> Admit:
    """``admit``, but tuples of values that need no change are taken as they are. Made for the type, of one expression for all
    fields: it runs for each record, and a call for each field would cost more than all the rest."""
    values = [f"v{i}" for i in range(len(data_type))]
    tests = [_plain_test(field, v) for v, field in zip(values, data_type, strict=True)]
    source = f"""
def quickly(value):
    if isinstance(value, tuple) and len(value) == {len(values)}:
        {"".join(f"{v}, " for v in values) or "()"} = value
        if {" and ".join(tests) or True}:
            return value if type(value) is kind else kind(value)
    return admit(value)
"""
    space: dict[str, Any] = {"kind": kind, "admit": admit}
    exec(source, space)
    quickly: Admit = space["quickly"]
    return quickly


def _plain_test(field: "pa.Field[Any]", value: str) -> str:
    test = _plain_test_of_type(field.type, value)
    return f"({value} is None or {test})" if field.nullable else test


def _plain_test_of_type(data_type: pa.DataType, value: str) -> str:
    t = pa.types
    if t.is_integer(data_type):
        low, high = _bounds(data_type)
        return f"type({value}) is int and {low} <= {value} <= {high}"
    if t.is_float64(data_type):
        return f"type({value}) is float and {value} == {value}"
    if t.is_boolean(data_type):
        return f"type({value}) is bool"
    if t.is_string(data_type) or t.is_large_string(data_type):
        return f"type({value}) is str and {value}.isascii()"
    return "False"
