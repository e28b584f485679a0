"""Polars expressions over groups of rows: which columns they read, what comes out, and the computation."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import polars as pl
import pyarrow as pa
from polars.exceptions import PolarsError

from cutwater.errors import ConfigError, DataError, SchemaError
from cutwater.flow.arrow import Array
from cutwater.flow.event_time import Times
from cutwater.operators.polars_arrow import fitted, frame_of, stable_schema
from cutwater.schema import missing_column
from cutwater.state.encoded_keys import plain_field

NOTHING_KNOWN: Mapping[str, pa.DataType] = MappingProxyType({})


class FrameAggregates:
    """Expressions by the name of their result, for rows of ``rows``; ``known``: the types of results that need not be found
    out. Pickled with its operator."""

    def __init__(
        self, expressions: Mapping[str, pl.Expr], rows: pa.Schema, known: Mapping[str, pa.DataType] = NOTHING_KNOWN
    ) -> None:
        self._expressions = [_checked(name, expression, rows).alias(name) for name, expression in expressions.items()]
        wanted = {column for expression in self._expressions for column in expression.meta.root_names()}
        self.reads = pa.schema([plain_field(field) for field in rows if field.name in wanted])
        """The columns that have to be kept."""
        self._group = _other_than([*self.reads.names, *expressions])
        self.results = pa.schema([field.with_type(known.get(field.name, field.type)) for field in self._probed()])

    def compute(self, rows: pa.RecordBatch, groups: Times, where: str) -> list[Array]:
        """One value of each result for every group, in the order in which the groups first appear."""
        try:
            frame = self._grouped(
                frame_of(rows.select(self.reads.names).cast(self.reads)),
                pl.Series(self._group, groups),
                self._expressions,
            )
        except PolarsError as error:
            raise DataError(f"{where}: {error}") from error
        return fitted(frame, self.results, where).columns

    def _grouped(self, frame: pl.DataFrame, groups: pl.Series, expressions: Sequence[pl.Expr]) -> pl.DataFrame:
        number = self._group
        return frame.with_columns(groups).group_by(number, maintain_order=True).agg(expressions).drop(number)

    def _probed(self) -> pa.Schema:
        """By running the expressions on no rows."""
        where = "agg()"
        try:
            empty = frame_of(pa.RecordBatch.from_pylist([], schema=self.reads))
            for expression in self._expressions:
                where = _where(expression.meta.output_name(), expression.meta.undo_aliases())
                self._grouped(empty, pl.Series(self._group, [], pl.Int64), [expression])
        except (SchemaError, PolarsError) as error:
            raise SchemaError(f"{where}: {error}") from None
        return stable_schema(self._grouped(empty, pl.Series(self._group, [], pl.Int64), self._expressions), "agg()")


def _other_than(names: Collection[str]) -> str:
    """A name that no column has."""
    name = "$group"
    while name in names:
        name += "$"
    return name


def _where(name: str, expression: pl.Expr) -> str:
    return f"agg({name}={expression})"


def _checked(name: str, expression: pl.Expr, rows: pa.Schema) -> pl.Expr:
    where = _where(name, expression)
    if expression.meta.has_multiple_outputs():
        raise ConfigError(f"{where}: gives several columns; write one aggregate for each.")
    columns = expression.meta.root_names()
    if not columns:
        raise ConfigError(f"{where}: reads no column; to count records write cw.count().")
    for column in columns:
        if column not in rows.names:
            raise SchemaError(missing_column(column, rows.names, where))
    return expression
