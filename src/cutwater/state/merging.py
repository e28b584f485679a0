"""How two Python values of an accumulator become one: as the kernels do it in columns."""

import decimal
from collections.abc import Callable
from operator import add
from typing import Any

import pyarrow as pa

from cutwater.errors import DataError
from cutwater.state.tables import Column, Merge

_EXACT_DECIMALS = decimal.Context(prec=80)
_LONGS = range(-(1 << 63), 1 << 63)

Merger = Callable[[Any, Any], Any]
"""Of two values that are both there, the older one first."""


def merger(merge: Merge, column: Column) -> Merger:
    match merge:
        case Merge.MIN:
            return _smaller
        case Merge.MAX:
            return _larger
        case Merge.FIRST:
            return lambda old, value: old
        case Merge.LAST:
            return lambda old, value: value
        case _ if pa.types.is_integer(column.type):
            return _sum_of_longs(column)
        case _ if isinstance(column.type, pa.Decimal128Type):
            return _sum_of_decimals(column, column.type)
        case _:
            return add


def _smaller(old: Any, value: Any) -> Any:
    """NaN is larger than every number, as in Spark."""
    return value if value < old or old != old else old


def _larger(old: Any, value: Any) -> Any:
    return value if value > old or value != value else old


def _sum_of_longs(column: Column) -> Merger:
    def total(old: int, value: int) -> int:
        if (found := old + value) not in _LONGS:
            raise DataError(f"the sum {column.name!r} left the range of a long. Sum a double or a decimal instead.")
        return found

    return total


def _sum_of_decimals(column: Column, kind: pa.Decimal128Type) -> Merger:
    beyond = decimal.Decimal(10) ** (kind.precision - kind.scale)

    def total(old: decimal.Decimal, value: decimal.Decimal) -> decimal.Decimal:
        found = _EXACT_DECIMALS.add(old, value)
        if found.copy_abs() >= beyond:
            raise DataError(
                f"the sum {column.name!r} left the range of a decimal({kind.precision},{kind.scale}). Sum a double instead."
            )
        return found

    return total
