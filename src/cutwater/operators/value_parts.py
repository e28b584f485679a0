"""Aggregates that are kept as Python values under each key: lists, distinct values, own accumulators, rows for expressions."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from cutwater.aggregates import AggregateFunction, AggregateKind, AggregateSpec, Aggregation
from cutwater.errors import ConfigError, DataError, SchemaError
from cutwater.flow.arrow import Array
from cutwater.given_functions import check_methods
from cutwater.operators.frame_aggregates import FrameAggregates
from cutwater.operators.user_code import user_error
from cutwater.rows import batch_of, key_values_of, rows_of, shortened, values_of
from cutwater.schema import arrow_type, require_columns
from cutwater.state.encoded_keys import plain
from cutwater.state.place import Place
from cutwater.state.value_types import handing_out

EXPRESSIONS = "$rows"
"""Under which the rows are kept that expressions are computed of; no name of a result."""


class ValuePart(ABC):
    """One kept value under each key and window, and the results that are computed of it."""

    name: str
    """In the stored struct."""
    kept: pa.DataType
    results: pa.Schema

    def open(self, uid: str, where: str) -> None:
        """In the subtask, before all else."""
        self._where = where

    @abstractmethod
    def of_fragments(self, ordered: pa.RecordBatch, edges: Sequence[int]) -> list[Any]:
        """The value of each run of rows between two of ``edges``."""

    @abstractmethod
    def merged(self, before: Any, after: Any) -> Any:
        """Of two values; neither is changed."""

    def finished(self, value: Any) -> Any:
        """What a function of the user makes of a value that is told."""
        return value

    @abstractmethod
    def outcome(self, values: Sequence[Any]) -> Sequence[Array]:
        """The columns of ``results``, one row for each of ``values``, which are finished."""


class Collected(ValuePart):
    """``cw.collect_list("tag")``."""

    def __init__(self, name: str, column: str, rows: pa.Schema) -> None:
        self.name, self._column = name, column
        self.kept = pa.list_(plain(rows.field(column).type))
        self.results = pa.schema([pa.field(name, self.kept)])

    def of_fragments(self, ordered: pa.RecordBatch, edges: Sequence[int]) -> list[Any]:
        values = values_of(ordered.column(self._column))
        return [[value for value in values[start:stop] if value is not None] for start, stop in pairwise(edges)]

    def merged(self, before: Any, after: Any) -> Any:
        return [*before, *after]

    def outcome(self, values: Sequence[Any]) -> Sequence[Array]:
        return [pa.array(values, self.kept)]


class Distinct(ValuePart):
    """``cw.count_distinct("page")``: a dict of the values, as it keeps their order and is stored as a map."""

    def __init__(self, name: str, column: str, rows: pa.Schema) -> None:
        self.name, self._column = name, column
        data_type = plain(rows.field(column).type)
        if pa.types.is_nested(data_type):
            raise SchemaError(f"agg({name}=count_distinct({column})): values of type {data_type} are not compared.")
        self.kept = pa.map_(data_type, pa.bool_())
        self.results = pa.schema([pa.field(name, pa.int64())])

    def of_fragments(self, ordered: pa.RecordBatch, edges: Sequence[int]) -> list[Any]:
        values = key_values_of(ordered.column(self._column))
        return [{value: True for value in values[start:stop] if value is not None} for start, stop in pairwise(edges)]

    def merged(self, before: Any, after: Any) -> Any:
        return before if after.keys() <= before.keys() else {**before, **after}

    def outcome(self, values: Sequence[Any]) -> Sequence[Array]:
        return [pa.array([len(each) for each in values], pa.int64())]


METHODS = ("create", "add", "merge", "result")


class Own(ValuePart):
    """A ``cw.AggregateFunction``."""

    def __init__(self, name: str, fn: AggregateFunction) -> None:
        self.name, self._fn = name, fn
        told = f"agg({name}={type(fn).__name__}())"
        for method in METHODS:
            if getattr(type(fn), method) is getattr(AggregateFunction, method):
                raise ConfigError(f"{told}: {type(fn).__name__} needs a method {method}.")
        check_methods(told, fn, AggregateFunction, METHODS)
        types = []
        for attribute in ("accumulator_type", "result_type"):
            if not hasattr(fn, attribute):
                raise ConfigError(f"{told}: {type(fn).__name__} needs an attribute {attribute}, like 'double'.")
            types.append(arrow_type(getattr(fn, attribute), f"{type(fn).__name__}.{attribute}"))
        self.kept, result = types
        self.results = pa.schema([pa.field(name, result)])

    def open(self, uid: str, where: str) -> None:
        super().open(uid, where)
        self._place = Place(uid, f"{self.name!r}, the accumulator of {type(self._fn).__name__},", self.kept)
        self._copied = handing_out(self.kept)

    def of_fragments(self, ordered: pa.RecordBatch, edges: Sequence[int]) -> list[Any]:
        rows, fn = rows_of(ordered), self._fn
        found: list[Any] = []
        row = None
        try:
            for start, stop in pairwise(edges):
                accumulator = self._admitted(fn.create())
                for row in rows[start:stop]:
                    # As a row, if it is a struct: the function sees the same kind whoever made it.
                    accumulator = self._returned("add", accumulator, fn.add(accumulator, row))
                found.append(accumulator)
        except DataError:
            raise
        except Exception as error:
            raise user_error(error, f"{self._where}, {self.name}", row) from error
        return found

    def merged(self, before: Any, after: Any) -> Any:
        if before is None or after is None:
            return after if before is None else before
        try:
            found = self._fn.merge(self._handed_out(before), self._handed_out(after))
        except Exception as error:
            raise user_error(error, f"{self._where}, {self.name}") from error
        return self._returned("merge", before, found)

    def finished(self, value: Any) -> Any:
        try:
            return None if value is None else self._fn.result(self._handed_out(value))
        except Exception as error:
            raise user_error(error, f"{self._where}, {self.name}") from error

    def outcome(self, values: Sequence[Any]) -> Sequence[Array]:
        return batch_of([(value,) for value in values], self.results, self._where).columns

    def _admitted(self, value: Any) -> Any:
        return None if value is None else self._place.admitted(value)

    def _returned(self, method: str, before: Any, after: Any) -> Any:
        if after is None and before is not None:
            raise DataError(
                f"{self._where}, {self.name}: {type(self._fn).__name__}.{method} gave None, where there was {shortened(before)}. "
                "It must return the accumulator (is a return missing?)."
            )
        return self._admitted(after)

    def _handed_out(self, value: Any) -> Any:
        return value if self._copied is None else self._copied(value)


class Rows(ValuePart):
    """Polars expressions: the rows, with the columns that any of them reads."""

    name = EXPRESSIONS

    def __init__(self, expressions: Mapping[str, pl.Expr], rows: pa.Schema) -> None:
        self._frames = FrameAggregates(expressions, rows)
        self.kept = pa.list_(pa.struct(list(self._frames.reads)))
        self.results = self._frames.results

    def of_fragments(self, ordered: pa.RecordBatch, edges: Sequence[int]) -> list[Any]:
        rows = rows_of(ordered.select(self._frames.reads.names))
        return [rows[start:stop] for start, stop in pairwise(edges)]

    def merged(self, before: Any, after: Any) -> Any:
        return [*before, *after]

    def outcome(self, values: Sequence[Any]) -> Sequence[Array]:
        rows = batch_of([row for each in values for row in each], self._frames.reads, self._where)
        groups = np.repeat(np.arange(len(values)), [len(each) for each in values])
        return self._frames.compute(rows, groups, self._where)


def value_parts(results: Mapping[str, Aggregation], rows: pa.Schema) -> list[ValuePart]:
    """For all of ``results`` that are not kept in columns."""
    parts: list[ValuePart] = []
    for name, each in results.items():
        match each:
            case AggregateSpec(kind=AggregateKind.COLLECT_LIST | AggregateKind.COUNT_DISTINCT, column=str() as column):
                require_columns(rows, [column], f"agg({name}={each})")
                made = Collected if each.kind is AggregateKind.COLLECT_LIST else Distinct
                parts.append(made(name, column, rows))
            case AggregateFunction():
                parts.append(Own(name, each))
    if expressions := {name: each for name, each in results.items() if isinstance(each, pl.Expr)}:
        parts.append(Rows(expressions, rows))
    return parts
