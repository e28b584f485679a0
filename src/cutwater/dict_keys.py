"""Values as keys of Python dicts. A dict finds NaN only when it is the same object, and of 0.0 and -0.0, which are equal, it shows
whichever came first."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa

Convert = Callable[[Any], Any]


@lru_cache(maxsize=4096)
def as_key(data_type: pa.DataType) -> Convert | None:
    """How a value of this type becomes a key: floats that are the same key are one value (0.0 for -0.0, one NaN). None when every
    value is one already."""
    return _converted(data_type, _one_float)


@lru_cache(maxsize=4096)
def as_found_again(data_type: pa.DataType) -> Convert | None:
    """For keys of a map that is itself a value: they stay as they are, but for NaN, which would not be found."""
    return _converted(data_type, _one_nan)


def _converted(data_type: pa.DataType, convert_float: Convert) -> Convert | None:
    match data_type:
        case pa.StructType():
            parts = [_converted(field.type, convert_float) for field in data_type]
            return _struct(parts) if any(parts) else None
        case pa.DictionaryType():
            return _converted(data_type.value_type, convert_float)
        case _ if pa.types.is_floating(data_type):
            return convert_float
        case _:
            return None


def _one_float(value: Any) -> Any:
    return 0.0 if value == 0 else _one_nan(value)


def _one_nan(value: Any) -> Any:
    return math.nan if value != value else value


def _struct(parts: list[Convert | None]) -> Convert:
    def convert(row: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        if row is None:
            return None
        return tuple.__new__(
            type(row), [value if part is None else part(value) for value, part in zip(row, parts, strict=True)]
        )

    return convert
