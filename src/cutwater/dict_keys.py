"""Values as keys of Python dicts: NaN is one key like any other, but a dict finds it only when it is the same object."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa


@lru_cache(maxsize=4096)
def as_key(data_type: pa.DataType) -> Callable[[Any], Any] | None:
    """How a value of this type becomes a key that is found again; None when every value is one already."""
    match data_type:
        case pa.StructType():
            parts = [as_key(field.type) for field in data_type]
            return _struct(parts) if any(parts) else None
        case pa.DictionaryType():
            return as_key(data_type.value_type)
        case _ if pa.types.is_floating(data_type):
            return _one_nan
        case _:
            return None


def _one_nan(value: Any) -> Any:
    return math.nan if value != value else value


def _struct(parts: list[Callable[[Any], Any] | None]) -> Callable[[Any], Any]:
    def convert(row: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        if row is None:
            return None
        return tuple.__new__(
            type(row), [value if part is None else part(value) for value, part in zip(row, parts, strict=True)]
        )

    return convert
