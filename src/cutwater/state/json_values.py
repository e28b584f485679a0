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


@lru_cache(maxsize=1024)
def to_json(data_type: pa.DataType) -> Convert:
    """For values as state admits them."""
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
        case pa.ListType() | pa.LargeListType():
            element = to_json(data_type.value_type)
            return lambda values: [element(value) for value in values]
        case _ if t.is_floating(data_type):
            return lambda value: value if math.isfinite(value) else str(value)
        case _ if t.is_binary(data_type) or t.is_large_binary(data_type):
            return lambda value: base64.b64encode(value).decode()
        case _ if t.is_decimal(data_type):
            return str
        case _ if t.is_date(data_type):
            return lambda value: value.isoformat()
        case _ if t.is_timestamp(data_type):
            return lambda value: (
                (value if value.tzinfo else value.replace(tzinfo=dt.UTC)).__sub__(_EPOCH) // _MICROSECOND
            )
        case _:
            return lambda value: value


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
        case pa.ListType() | pa.LargeListType():
            element = from_json(data_type.value_type)
            return lambda values: [element(value) for value in values]
        case _ if t.is_floating(data_type):
            return float
        case _ if t.is_binary(data_type) or t.is_large_binary(data_type):
            return base64.b64decode
        case _ if t.is_decimal(data_type):
            return Decimal
        case _ if t.is_date(data_type):
            return dt.date.fromisoformat
        case pa.TimestampType():
            zoned = data_type.tz is not None

            def moment(value: int) -> dt.datetime:
                found = _EPOCH + value * _MICROSECOND
                return found if zoned else found.replace(tzinfo=None)

            return moment
        case _:
            return lambda value: value
