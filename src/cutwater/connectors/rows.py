"""Rows that the program already holds: for examples, tests and small tables."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa

from cutwater.arguments import takes_no_others
from cutwater.connectors.source import END, EndOfSplit, Json, Source, SourceContext, SplitReader
from cutwater.errors import ConfigError
from cutwater.exact_arrays import MISFITS, exact_array
from cutwater.rows import shortened
from cutwater.schema import SchemaLike, arrow_schema


@takes_no_others
def from_rows(rows: Iterable[Any], schema: SchemaLike) -> "RowsSource":
    """Tuples, dicts or rows (or bare values, for a single column), in their order: they are one split.

    A dict has all columns, and every value fits its column as it is; else ConfigError, naming row, column and value.
    """
    if not isinstance(rows, Iterable):
        raise ConfigError(f"from_rows: rows={rows!r}; a list or another iterable of tuples, dicts or rows is needed")
    return RowsSource(_columns(list(rows), arrow_schema(schema, "from_rows: schema")))


class RowsSource(Source):
    def __init__(self, batch: pa.RecordBatch) -> None:
        self.schema = batch.schema
        self._batch = batch

    def splits(self) -> Sequence[Json]:
        return [{"rows": self._batch.num_rows}]

    def open(self, split: Json, position: Json | None, ctx: SourceContext) -> "RowsReader":
        return RowsReader(self._batch, position or 0)

    def describe(self) -> str:
        return f"from_rows({self._batch.num_rows})"


class RowsReader(SplitReader):
    """Position: how many rows were returned."""

    def __init__(self, batch: pa.RecordBatch, at: int) -> None:
        self._batch, self._at = batch, at

    def next_batch(self, max_rows: int, timeout: timedelta) -> pa.RecordBatch | EndOfSplit | None:
        if self._at >= self._batch.num_rows:
            return END
        taken = self._batch.slice(self._at, max_rows)
        self._at += taken.num_rows
        return taken

    def position(self) -> Json:
        return self._at


def _columns(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    cells = [_cells(row, index, schema) for index, row in enumerate(rows)]
    arrays = []
    for at, field in enumerate(schema):
        column = [row[at] for row in cells]
        try:
            arrays.append(exact_array(column, field.type))
        except MISFITS as error:
            raise _misfit(column, field, error) from error
        if not field.nullable and arrays[-1].null_count:
            index = arrays[-1].is_null().to_pylist().index(True)
            raise ConfigError(f"from_rows: row {index}, column {field.name!r} is None, but the schema says NOT NULL")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cells(row: Any, index: int, schema: pa.Schema) -> Sequence[Any]:
    match row:
        case Mapping():
            if unknown := [name for name in row if name not in schema.names]:
                raise ConfigError(
                    f"from_rows: row {index} has {unknown[0]!r}; the columns are {', '.join(schema.names)}"
                )
            if missing := [name for name in schema.names if name not in row]:
                raise ConfigError(
                    f"from_rows: row {index} lacks column {missing[0]!r}; write None for it if that is meant"
                )
            return [row[name] for name in schema.names]
        case tuple() | list():
            if len(row) != len(schema.names):
                raise ConfigError(
                    f"from_rows: row {index} has {len(row)} values, the schema {len(schema.names)} columns: {row!r}"
                )
            return row
        case _ if len(schema.names) == 1:
            return (row,)
        case _:
            raise ConfigError(f"from_rows: row {index} is {row!r}; a tuple, dict or row is needed")


def _misfit(column: Sequence[Any], field: "pa.Field[Any]", error: Exception) -> ConfigError:
    for index, value in enumerate(column):
        try:
            exact_array([value], field.type)
        except MISFITS as why:
            return ConfigError(
                f"from_rows: row {index}, column {field.name!r}: {shortened(value)} is no {field.type} ({why}); "
                "correct the row or the schema"
            )
    return ConfigError(f"from_rows: column {field.name!r} is {field.type}, which cannot hold its values: {error}")
