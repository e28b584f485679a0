"""The aggregates of ``k.agg(...)``: ``cw.count()``, ``cw.sum("amount")`` and so on, of which all ignore nulls; own ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import polars as pl

from cutwater.arguments import takes_no_others
from cutwater.errors import ConfigError
from cutwater.schema import TypeLike


class AggregateKind(StrEnum):
    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"
    FIRST = "first"
    LAST = "last"
    COLLECT_LIST = "collect_list"
    COUNT_DISTINCT = "count_distinct"


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


@takes_no_others
def count(column: str | None = None) -> AggregateSpec:
    """How many records; with a column: how many of its values are not null."""
    return AggregateSpec(AggregateKind.COUNT, column)


@takes_no_others
def sum(column: str) -> AggregateSpec:
    """A long for integers (a sum beyond its range fails), a double for floats, a wider decimal for decimals."""
    return AggregateSpec(AggregateKind.SUM, column)


@takes_no_others
def min(column: str) -> AggregateSpec:
    """The smallest value; NaN counts as larger than every number."""
    return AggregateSpec(AggregateKind.MIN, column)


@takes_no_others
def max(column: str) -> AggregateSpec:
    """The largest value; NaN counts as larger than every number."""
    return AggregateSpec(AggregateKind.MAX, column)


@takes_no_others
def mean(column: str) -> AggregateSpec:
    """The average, as a double."""
    return AggregateSpec(AggregateKind.MEAN, column)


@takes_no_others
def first(column: str) -> AggregateSpec:
    """The first value that is not null, by arrival; of a sliding window, in the first of its slides that has one."""
    return AggregateSpec(AggregateKind.FIRST, column)


@takes_no_others
def last(column: str) -> AggregateSpec:
    """The latest value that is not null, by arrival; of a sliding window, in the last of its slides that has one."""
    return AggregateSpec(AggregateKind.LAST, column)


@takes_no_others
def collect_list(column: str) -> AggregateSpec:
    """All values that are not null, by arrival, those of a sliding window slide by slide. In windows and sessions: a running list
    would grow for ever."""
    return AggregateSpec(AggregateKind.COLLECT_LIST, column)


@takes_no_others
def count_distinct(column: str) -> AggregateSpec:
    """How many different values that are not null. Keeps them all while it counts."""
    return AggregateSpec(AggregateKind.COUNT_DISTINCT, column)


class AggregateFunction:
    """An own aggregate: ``k.agg(spread=Spread())``. An instance is pickled to the workers.

    What is kept for a key (and window) is an accumulator of ``accumulator_type``, checked and stored as that, never as a Python
    object. Records are added to fresh accumulators, which are merged: ``merge(a, b)`` must give what adding all records of both
    to one would. ``None`` stands for an accumulator to which nothing was added, and is never merged.
    """

    accumulator_type: TypeLike
    """What is kept: ``"struct<low:double,high:double>"``."""
    result_type: TypeLike
    """What comes out: ``"double"``."""

    def create(self) -> Any:
        """A fresh accumulator."""
        raise NotImplementedError

    def add(self, accumulator: Any, row: Any) -> Any:
        """The accumulator with one more row of the stream."""
        raise NotImplementedError

    def merge(self, a: Any, b: Any) -> Any:
        """One of two; ``a`` was begun first."""
        raise NotImplementedError

    def result(self, accumulator: Any) -> Any:
        """What the user sees of it."""
        raise NotImplementedError


Aggregation = AggregateSpec | AggregateFunction | pl.Expr
"""What ``agg(name=...)`` takes."""


def kind_of(aggregation: Aggregation) -> str:
    """Stored with checkpoints: what one kind kept is not read by another. Own classes are all of one kind, as they may be
    renamed; expressions too, as what is kept for them is rows."""
    match aggregation:
        case AggregateSpec():
            return str(aggregation.kind)
        case AggregateFunction():
            return "own"
        case _:
            return "expression"


def described(results: Mapping[str, Aggregation]) -> str:
    """Of columns that may be renamed, but a count never goes on as a sum."""
    return ", ".join(sorted(f"{name}={kind_of(each)}" for name, each in results.items()))


def refuse_aggregate_as_verb(name: str) -> None:
    """As other libraries spell it: ``k.window(...).sum("amount")``."""
    if name in list(AggregateKind):
        column = "" if name == AggregateKind.COUNT else "'amount'"
        raise ConfigError(f"{name} is written in agg, with the name of its result: .agg(result=cw.{name}({column})).")


def in_columns(results: Mapping[str, Aggregation]) -> Mapping[str, AggregateSpec] | None:
    """The same if each is kept as accumulator columns, merged by kernels and combined before the exchange; else None."""
    if any(needs_values(each) for each in results.values()):
        return None
    return results  # type: ignore[return-value]  # what is no aggregate at all is refused by whoever plans them


def is_decided_by_order(aggregation: Aggregation) -> bool:
    """Whether another order of the same records gives another result."""
    return isinstance(aggregation, AggregateSpec) and aggregation.kind in (AggregateKind.FIRST, AggregateKind.LAST)


def needs_values(aggregation: Aggregation) -> bool:
    """Whether it is kept as a Python value under each key."""
    match aggregation:
        case AggregateSpec(kind=kind):
            return kind in (AggregateKind.COLLECT_LIST, AggregateKind.COUNT_DISTINCT)
        case _:
            return isinstance(aggregation, AggregateFunction | pl.Expr)
