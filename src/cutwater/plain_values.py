"""Values of numpy, Arrow and Polars, and containers of them, as the plain Python values that they stand for.

Looked at only when a value did not fit as it came: whoever returns plain values pays nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

TEXT = (str, bytes, bytearray, memoryview)


def plain_value(value: Any, data_type: pa.DataType) -> Any:
    """For a column of this type: structs as tuples, maps as dicts or pairs. What cannot be one is left as it is.

    ValueError (or one of Arrow) where the plain value would be another one: a datetime has no nanoseconds.
    """
    value = _unwrapped(value)
    if value is None:
        return None
    match data_type:
        case pa.StructType():
            return _plain_struct(value, list(data_type))
        case pa.MapType():
            return _plain_map(value, data_type)
        case pa.ListType() | pa.LargeListType() | pa.FixedSizeListType() if _is_several(value):
            return [plain_value(each, data_type.value_type) for each in value]
        case _:
            return value


def _plain_struct(value: Any, fields: "list[pa.Field[Any]]") -> Any:
    if isinstance(value, Mapping) and value.keys() == {field.name for field in fields}:
        value = tuple(value[field.name] for field in fields)
    if not isinstance(value, tuple) or len(value) != len(fields):
        return value
    return tuple(plain_value(each, field.type) for each, field in zip(value, fields, strict=True))


def _plain_map(value: Any, data_type: "pa.MapType[Any, Any, Any]") -> Any:
    def pair(key: Any, item: Any) -> tuple[Any, Any]:
        return plain_value(key, data_type.key_type), plain_value(item, data_type.item_type)

    if isinstance(value, Mapping):
        return dict(pair(key, item) for key, item in value.items())
    if isinstance(value, list) and all(isinstance(each, tuple) and len(each) == 2 for each in value):
        return [pair(*each) for each in value]
    return value


def _is_several(value: Any) -> bool:
    return hasattr(value, "__iter__") and not isinstance(value, (*TEXT, Mapping, Iterator))


def _unwrapped(value: Any) -> Any:
    """One layer; what is inside a container may still be foreign."""
    scalar: Any = value  # the stubs know each scalar's own attributes only
    match value:
        case np.datetime64():
            return _plain_moment(value)
        case np.timedelta64():
            return pa.scalar(scalar).as_py()
        case np.generic():
            return value.item()
        case np.ndarray() if value.ndim == 0:
            return _unwrapped(value[()])
        case pl.Series():
            return value.to_list()
        case pa.DictionaryScalar() | pa.ExtensionScalar():
            return _unwrapped(value.value)
        case pa.MapScalar():
            return [tuple(pair.values()) for pair in scalar.values] if scalar.is_valid else None
        case pa.StructScalar():
            return dict(scalar.items()) if scalar.is_valid else None
        case pa.ListScalar() | pa.LargeListScalar() | pa.FixedSizeListScalar():
            return list(scalar.values) if scalar.is_valid else None
        case pa.TimestampScalar():
            return value.cast(pa.timestamp("us", value.type.tz)).as_py()
        case pa.Scalar():
            return value.as_py()
        case _:
            return value


def _plain_moment(value: np.datetime64) -> Any:
    """A date, or a datetime without a time zone."""
    if np.isnat(value):
        return None
    plain = value.astype("datetime64[D]" if np.datetime_data(value.dtype)[0] in "YMWD" else "datetime64[us]")
    if plain != value:
        raise ValueError(f"{value} would lose data in microseconds")
    return plain.item()
