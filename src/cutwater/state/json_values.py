"""Values of any type as JSON and back: operator state is small, and stands in the checkpoint's metadata."""

import base64
import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa

from cutwater.rows import row_type

Json = Any
Convert = Callable[[Any], Any]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_PLAIN = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_string, pa.types.is_large_string, pa.types.is_null)
"""What JSON has as it is."""


@lru_cache(maxsize=1024)
def to_json(data_type: pa.DataType) -> Convert:
    """For values as state admits them. TypeError for a type that JSON has no form of here."""
    return _optional(_encoder(data_type))


@lru_cache(maxsize=1024)
def from_json(data_type: pa.DataType) -> Convert:
    return _optional(_decoder(data_type))


def _optional(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _encoder(data_type: pa.DataType) -> Convert:
    t = pa.types
    match data_type:
        case pa.StructType():
            parts = [to_json(field.type) for field in data_type]
            return lambda row: [part(value) for part, value in zip(parts, row, strict=True)]
        case pa.MapType():
            key, item = to_json(data_type.key_type), to_json(data_type.item_type)
            return lambda value: [[key(k), item(v)] for k, v in value.items()]
        case pa.ListType() | pa.LargeListType() | pa.FixedSizeListType():
            element = to_json(data_type.value_type)
            return lambda values: [element(value) for value in values]
        case _ if t.is_floating(data_type):
            return lambda value: value if math.isfinite(value) else str(value)
        case _ if t.is_binary(data_type) or t.is_large_binary(data_type) or t.is_fixed_size_binary(data_type):
            return lambda value: base64.b64encode(value).decode()
        case _ if t.is_decimal(data_type):
            return str
        case _ if t.is_date(data_type):
            return lambda value: value.isoformat()
        case _ if _is_counted(data_type):
            counted = _counted_as(data_type)
            return lambda value: pa.scalar(value, data_type).cast(counted).as_py()
        case _ if t.is_timestamp(data_type):
            return lambda value: (
                (value if value.tzinfo else value.replace(tzinfo=dt.UTC)).__sub__(_EPOCH) // _MICROSECOND
            )
        case _ if any(test(data_type) for test in _PLAIN):
            return lambda value: value
        case _:
            raise TypeError(
                f"{data_type} cannot be kept in operator state; allowed are boolean, numbers, string, binary, date, time, "
                "timestamp, duration, and lists, maps and structs of them"
            )


def _is_counted(data_type: pa.DataType) -> bool:
    """Times that stand as a number of their own unit. (Other timestamps stand as microseconds.)"""
    t = pa.types
    finest = isinstance(data_type, pa.TimestampType) and data_type.unit == "ns"
    return t.is_time(data_type) or t.is_duration(data_type) or finest


def _counted_as(data_type: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_time32(data_type) else pa.int64()


def _decoder(data_type: pa.DataType) -> Convert:
    t = pa.types
    match data_type:
        case pa.StructType():
            kind = row_type(tuple(field.name for field in data_type))
            parts = [from_json(field.type) for field in data_type]
            return lambda row: tuple.__new__(kind, [part(value) for part, value in zip(parts, row, strict=True)])
        case pa.MapType():
            key, item = from_json(data_type.key_type), from_json(data_type.item_type)
            return lambda pairs: {key(k): item(v) for k, v in pairs}
        case pa.ListType() | pa.LargeListType() | pa.FixedSizeListType():
            element = from_json(data_type.value_type)
            return lambda values: [element(value) for value in values]
        case _ if t.is_floating(data_type):
            return float
        case _ if t.is_binary(data_type) or t.is_large_binary(data_type) or t.is_fixed_size_binary(data_type):
            return base64.b64decode
        case _ if t.is_decimal(data_type):
            return Decimal
        case _ if t.is_date(data_type):
            return dt.date.fromisoformat
        case _ if _is_counted(data_type):
            counted = _counted_as(data_type)
            return lambda value: pa.scalar(value, counted).cast(data_type).as_py()
        case pa.TimestampType():
            zoned = data_type.tz is not None

            def moment(value: int) -> dt.datetime:
                found = _EPOCH + value * _MICROSECOND
                return found if zoned else found.replace(tzinfo=None)

            return moment
        case _:
            return lambda value: value
