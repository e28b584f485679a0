"""Select, with_columns, filter and map_batches on whole columns, by Polars.

Only the columns that an expression reads go to Polars; the others stay the Arrow arrays they are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import polars as pl
import pyarrow as pa
from polars.exceptions import ColumnNotFoundError, DuplicateError, PolarsError

from cutwater.errors import ConfigError, DataError, SchemaError
from cutwater.operators.operator import Collector, Operator, OperatorContext
from cutwater.operators.polars_arrow import fitted, frame_of, stable_schema
from cutwater.operators.user_code import user_error
from cutwater.schema import SchemaLike, arrow_schema, missing_column

Expression = pl.Expr | str
"""A Polars expression, or SQL like ``"upper(word) AS w"``; a string that is a column's name means that column."""


class _Expressions(Operator):
    """What select and with_columns share: named output columns, each computed by Polars or passed through."""

    verb: str

    def __init__(self, expressions: Sequence[tuple[str | None, Expression]]) -> None:
        self._written = list(expressions)
        self.where = self.verb
        self._bound: dict[str, _Bound] = {}

    def open(self, ctx: OperatorContext) -> None:
        self.where = f"{self.verb} {ctx.name!r} ({ctx.uid})"

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        return self._bind(inputs[0]).schema

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        if batch.num_rows:
            out.emit(self._bind(batch.schema).apply(batch, self.where))

    def _bind(self, schema: pa.Schema) -> "_Bound":
        key = schema.to_string(show_schema_metadata=False)
        if key not in self._bound:
            self._bound = {key: self._bind_new(schema)}
        return self._bound[key]

    def _bind_new(self, schema: pa.Schema) -> "_Bound":
        expressions = [_expression(written, name, schema, self.where) for name, written in self._written]
        computed = _probe(expressions, schema, self.where)
        return self._arrange(schema, expressions, computed)

    def _arrange(self, schema: pa.Schema, expressions: Sequence[pl.Expr], computed: pa.Schema) -> "_Bound":
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_bound": {}}


class Select(_Expressions):
    """The given columns and no others, row by row."""

    verb = "select"

    def __init__(self, *expressions: Expression, **named: Expression) -> None:
        if not expressions and not named:
            raise ConfigError("select: give at least one expression, like select('word', pl.col('n') + 1)")
        super().__init__([*((None, expression) for expression in expressions), *named.items()])

    def _arrange(self, schema: pa.Schema, expressions: Sequence[pl.Expr], computed: pa.Schema) -> "_Bound":
        fields = [schema.field(e.meta.output_name()) for e in expressions if _is_plain(e)]
        passed = {field.name: field for field in fields}
        rest = [e for e in expressions if not _is_plain(e)]
        return _Bound(pa.schema([passed.get(field.name, field) for field in computed]), frozenset(passed), rest, schema)


class WithColumns(_Expressions):
    """All columns, with some added or replaced, row by row."""

    verb = "with_columns"

    def __init__(self, *expressions: Expression, **named: Expression) -> None:
        if not expressions and not named:
            raise ConfigError("with_columns: give at least one column, like with_columns(double=pl.col('n') * 2)")
        super().__init__([*((None, expression) for expression in expressions), *named.items()])

    def _arrange(self, schema: pa.Schema, expressions: Sequence[pl.Expr], computed: pa.Schema) -> "_Bound":
        new = {field.name: field for field in computed}
        fields = [new.get(field.name, field) for field in schema]
        fields += [field for name, field in new.items() if name not in schema.names]
        return _Bound(pa.schema(fields), frozenset(schema.names) - new.keys(), list(expressions), schema)


class _Bound:
    """Expressions for one input schema: what comes out, what passes through, what Polars has to see."""

    def __init__(
        self, schema: pa.Schema, passed: frozenset[str], computed: Sequence[pl.Expr], reads: pa.Schema
    ) -> None:
        self.schema = schema
        self._passed = passed
        self._expressions = list(computed)
        self._made = [name for name in schema.names if name not in passed]
        self._schema_made = pa.schema([schema.field(name) for name in self._made])
        self._reads = _columns_read(computed, reads)

    def apply(self, batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
        made: Mapping[str, pa.Array[Any]] = {}
        if self._made:
            try:
                frame = self._computed(frame_of(batch, self._reads), batch.num_rows)
            except PolarsError as error:
                raise DataError(f"{where}: {error}") from error
            fits = fitted(frame, self._schema_made, where)
            if not self._passed:
                return fits
            made = dict(zip(self._made, fits.columns, strict=True))
        columns = [batch.column(name) if name in self._passed else made[name] for name in self.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _computed(self, read: pl.DataFrame, rows: int) -> pl.DataFrame:
        if read.width:
            frame = read.select(self._expressions)
            if frame.height == rows:
                return frame
        # Only literals: with_columns, unlike select, gives them as many rows as the batch has
        return read.with_columns(self._expressions).select(self._made)


class FilterExpression(Operator):
    """The rows for which a Polars expression or an SQL condition is true; null is not true."""

    def __init__(self, condition: Expression) -> None:
        self._written = condition
        self.where = "filter"
        self._condition: pl.Expr | None = None
        self._reads: list[str] = []

    def open(self, ctx: OperatorContext) -> None:
        self.where = f"filter {ctx.name!r} ({ctx.uid})"

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        self._bind(inputs[0])
        return inputs[0]

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        if not batch.num_rows:
            return
        condition = self._condition if self._condition is not None else self._bind(batch.schema)
        try:
            frame = frame_of(batch, self._reads).with_columns(condition.alias("kept")).select("kept")
        except PolarsError as error:
            raise DataError(f"{self.where}: {error}") from error
        kept = frame.to_series().fill_null(value=False)
        if kept.all():
            out.emit(batch)
        elif kept.any():
            out.emit(batch.filter(kept.to_arrow()))

    def _bind(self, schema: pa.Schema) -> pl.Expr:
        condition = _expression(self._written, None, schema, self.where)
        computed = _probe([condition], schema, self.where)
        if len(computed) != 1 or computed.field(0).type != pa.bool_():
            types = ", ".join(str(field.type) for field in computed)
            raise SchemaError(f"{self.where}: {_shown(self._written)} gives {types}, not one boolean")
        self._condition, self._reads = condition, _columns_read([condition], schema)
        return condition

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_condition": None, "_reads": []}


class MapBatches(Operator):
    """A function from one ``pl.DataFrame`` to another, each time for as many rows as came together."""

    def __init__(self, fn: Callable[[pl.DataFrame], pl.DataFrame], schema: SchemaLike) -> None:
        self.fn = fn
        self.schema = arrow_schema(schema, "map_batches's schema")
        self.where = "map_batches"

    def open(self, ctx: OperatorContext) -> None:
        self.where = f"map_batches {ctx.name!r} ({ctx.uid})"

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        try:
            frame_of(pa.RecordBatch.from_pylist([], schema=inputs[0]))
        except SchemaError as error:
            raise SchemaError(f"map_batches: {error}") from None
        return self.schema

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        if not batch.num_rows:
            return
        try:
            result: object = self.fn(frame_of(batch))
        except Exception as error:
            raise user_error(error, self.where) from error
        if not isinstance(result, pl.DataFrame):
            raise DataError(f"{self.where}: the function returned a {type(result).__name__}, needed is a pl.DataFrame")
        fits = fitted(result, self.schema, self.where)
        if fits.num_rows:
            out.emit(fits)


def _expression(written: object, name: str | None, schema: pa.Schema, where: str) -> pl.Expr:
    """What the user wrote as an expression on columns that exist, one row at a time."""
    match written:
        case pl.Expr():
            expression = written
        case str() if written in schema.names:
            expression = pl.col(written)
        case str():
            expression = _sql(written, where)
        case _:
            raise ConfigError(f"{where}: {written!r} is neither a Polars expression nor an SQL string")
    for column in expression.meta.root_names():
        if column not in schema.names:
            raise SchemaError(missing_column(column, schema.names, f"{where}: {_shown(written)}"))
    _refuse_mixing_rows(expression, written, where)
    return expression if name is None else expression.alias(name)


def _sql(text: str, where: str) -> pl.Expr:
    try:
        return pl.sql_expr(text)
    except PolarsError as error:
        raise ConfigError(f"{where}: the SQL {text!r} cannot be read: {error}") from None


def _refuse_mixing_rows(expression: pl.Expr, written: object, where: str) -> None:
    """A sum or a shift would be over whatever rows happened to come in one batch, different after every restart."""
    for part in _parts(expression):
        if _looks_at_other_rows(part):
            raise ConfigError(
                f"{where}: {_shown(written)} looks at several rows at once ({part}), but a batch is an accidental set of "
                "rows; use key_by(...).agg(...), a window, or map_batches if that is meant"
            )
    with suppress(PolarsError):  # opaque functions: a wrong length is found when they run
        if not (expression.meta.is_length_preserving() or expression.meta.is_scalar()):
            raise ConfigError(
                f"{where}: {_shown(written)} changes the number of rows; use flat_map, filter or map_batches"
            )


def _parts(expression: pl.Expr) -> Iterator[pl.Expr]:
    """All expressions inside, but not the constants that ``is_in`` and SQL's IN look a row up in: no rows come from there."""
    yield expression
    looked_up = str(expression).endswith("is_in([Series])")
    for part in expression.meta.pop():
        if not (looked_up and part.meta.is_literal()):
            yield from _parts(part)


def _looks_at_other_rows(part: pl.Expr) -> bool:
    try:
        # inside list.eval, element() means the elements of one row's list
        return not (part.meta.is_row_separable() or (not part.meta.root_names() and "element()" in str(part)))
    except PolarsError:
        return False  # selectors and opaque functions: only Polars's engine knows, and the user vouches for them


def _probe(expressions: Sequence[pl.Expr], schema: pa.Schema, where: str) -> pa.Schema:
    """The schema that comes out, by running the expressions on no rows."""
    read = pa.schema([schema.field(name) for name in _columns_read(expressions, schema)])
    try:
        empty = frame_of(pa.RecordBatch.from_pylist([], schema=read))
    except SchemaError as error:
        raise SchemaError(f"{where}: {error}") from None
    try:
        return stable_schema(empty.select(*expressions), where)
    except ColumnNotFoundError as error:
        raise SchemaError(f"{where}: {str(error).splitlines()[0]}; available: {', '.join(schema.names)}") from None
    except DuplicateError as error:
        raise SchemaError(f"{where}: two expressions give the same column; use .alias: {error}") from None
    except PolarsError as error:
        raise SchemaError(f"{where}: {error}") from None


def _is_plain(expression: pl.Expr) -> bool:
    return expression.meta.is_column() and len(expression.meta.root_names()) == 1


def _columns_read(expressions: Sequence[pl.Expr], schema: pa.Schema) -> list[str]:
    """The columns that Polars has to see; all when an expression selects by pattern, one when it selects none."""
    if any(expression.meta.has_multiple_outputs() for expression in expressions):
        return schema.names
    wanted = {name for expression in expressions for name in expression.meta.root_names()}
    return [name for name in schema.names if name in wanted] or schema.names[:1]


def _shown(written: object) -> str:
    return repr(written) if isinstance(written, str) else str(written)
