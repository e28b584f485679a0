"""The aggregates of ``k.agg(...)``: ``cw.count()``, ``cw.sum("amount")`` and so on. Nulls are ignored by all of them."""

from dataclasses import dataclass
from enum import StrEnum

from cutwater.errors import ConfigError


class AggregateKind(StrEnum):
    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"
    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """What to compute, of which column; made by the functions below."""

    kind: AggregateKind
    column: str | None = None

    def __post_init__(self) -> None:
        if self.column is None and self.kind is not AggregateKind.COUNT:
            raise ConfigError(f"{self.kind}() needs a column: write cw.{self.kind}('amount').")
        if self.column is not None and not isinstance(self.column, str):
            raise ConfigError(f"{self.kind}({self.column!r}): the column must be named by a string.")

    def __str__(self) -> str:
        return f"{self.kind}({self.column or ''})"


def count(column: str | None = None) -> AggregateSpec:
    """How many records; with a column: how many of its values are not null."""
    return AggregateSpec(AggregateKind.COUNT, column)


def sum(column: str) -> AggregateSpec:
    """A long for integers (a sum beyond its range fails), a double for floats, a wider decimal for decimals."""
    return AggregateSpec(AggregateKind.SUM, column)


def min(column: str) -> AggregateSpec:
    """The smallest value; NaN counts as larger than every number."""
    return AggregateSpec(AggregateKind.MIN, column)


def max(column: str) -> AggregateSpec:
    """The largest value; NaN counts as larger than every number."""
    return AggregateSpec(AggregateKind.MAX, column)


def mean(column: str) -> AggregateSpec:
    """The average, as a double."""
    return AggregateSpec(AggregateKind.MEAN, column)


def first(column: str) -> AggregateSpec:
    """The first value that is not null, by arrival."""
    return AggregateSpec(AggregateKind.FIRST, column)


def last(column: str) -> AggregateSpec:
    """The latest value that is not null, by arrival."""
    return AggregateSpec(AggregateKind.LAST, column)
