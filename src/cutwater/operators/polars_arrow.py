"""Between Arrow and Polars: the same types in every batch, and no value changed on the way."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from polars.exceptions import PanicException, PolarsError

from cutwater.errors import DataError, SchemaError
from cutwater.nullability import all_nullable, tightened
from cutwater.schema import did_you_mean, missing_column

_last_made: tuple[pa.RecordBatch, pl.DataFrame] | None = None
"""The batch that last came from a frame, and that frame: most often the next operator of the chain wants it back, and texts are
kept in different ways, so that each change of hands costs a copy."""


def frame_of(batch: pa.RecordBatch, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """The batch, or some columns of it, for Polars; numbers are not copied. SchemaError for a type that Polars lacks."""
    global _last_made
    made, _last_made = _last_made, None
    if made is not None and made[0] is batch:
        return made[1] if columns is None else made[1].select(columns)
    if columns is not None:
        batch = batch.select(list(columns))
    try:
        frame = pl.from_arrow(batch, rechunk=False)
    except (PanicException, PolarsError) as error:
        types = ", ".join(f"{field.name} {field.type}" for field in batch.schema)
        raise SchemaError(f"Polars cannot hold one of the columns {types}: {error}") from None
    assert isinstance(frame, pl.DataFrame)
    return frame


def stable_schema(frame: pl.DataFrame, where: str) -> pa.Schema:
    """The Arrow schema that results of this kind have in every batch."""
    fields: list[pa.Field[Any]] = []
    for column in frame.head(0).get_columns():
        data_type = _arrow_type(column)
        if data_type is None:
            raise SchemaError(f"{where}: {_foreign(column)}")
        fields.append(pa.field(column.name, _stable(data_type, column.name, where)))
    return pa.schema(fields)


def _arrow_type(column: pl.Series) -> pa.DataType | None:
    """None if Arrow has no such type. Of Python objects it would get the addresses."""
    if column.dtype == pl.Object:
        return None
    try:
        return column.to_frame().to_arrow().schema.types[0]
    except pa.ArrowException:
        return None


def _foreign(column: pl.Series) -> str:
    return (
        f"column {column.name!r} is {column.dtype}, a type that only Polars has; give it another one, as with .cast(pl.Int64) or "
        f".cast(pl.Decimal(38, 0))"
    )


def _stable(data_type: pa.DataType, column: str, where: str) -> pa.DataType:
    """Spark's nearest type: Polars has large strings, unsigned numbers and other units of time."""
    match data_type:
        case pa.ListType() | pa.LargeListType() | pa.FixedSizeListType():
            return pa.list_(_stable(data_type.value_type, column, where))
        case pa.StructType():
            fields = [data_type.field(i) for i in range(data_type.num_fields)]
            return pa.struct([pa.field(field.name, _stable(field.type, column, where)) for field in fields])
        case pa.MapType():
            return pa.map_(_stable(data_type.key_type, column, where), _stable(data_type.item_type, column, where))
        case pa.DictionaryType():
            return _stable(data_type.value_type, column, where)
        case pa.TimestampType():
            return pa.timestamp("us", data_type.tz)
        case pa.Decimal128Type() | pa.Decimal256Type():
            return pa.decimal128(min(data_type.precision, 38), data_type.scale)
    if pa.types.is_null(data_type):
        raise SchemaError(f"{where}: column {column!r} is always null and has no type; give it one with .cast(...)")
    return _SPARKS.get(data_type, data_type)


_SPARKS: dict[pa.DataType, pa.DataType] = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),
}


def fitted(frame: pl.DataFrame, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """The frame as one batch of ``schema``. DataError, naming column and both types, if that would change a value."""
    global _last_made
    try:
        table = frame.to_arrow()
    except pa.ArrowException as error:
        foreign = [_foreign(column) for column in frame.get_columns() if _arrow_type(column.head(0)) is None]
        raise DataError(f"{where}: {foreign[0] if foreign else error}") from None
    batch = fitted_table(table, schema, where)
    if table.schema.names == schema.names and all(map(_is_same_in_polars, table.schema.types, schema.types)):
        _last_made = batch, frame.clone()  # whoever gave the frame may keep it, and change it
    return batch


def _is_same_in_polars(made: pa.DataType, wanted: pa.DataType) -> bool:
    return made == wanted or (_is_text(made) and _is_text(wanted)) or (_is_bytes(made) and _is_bytes(wanted))


def fitted_table(table: pa.Table, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """The same for a table: columns in the schema's order, cast where no value changes, in one piece."""
    unknown = [name for name in table.column_names if name not in schema.names]
    if unknown:
        raise DataError(
            f"{where}: the result has a column {unknown[0]!r}, which the schema has not"
            f"{did_you_mean(unknown[0], schema.names)}; drop it or name it in the schema, which has: "
            f"{', '.join(schema.names)}"
        )
    if (same := _same_columns(table, schema)) is not None:
        return same
    return pa.RecordBatch.from_arrays([_fitted_column(table, field, where) for field in schema], schema=schema)


def _same_columns(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch | None:
    """The common case, quickly: the right columns in the right order, in one piece."""
    if table.schema.names != schema.names or table.schema.types != schema.types:
        return None
    batches = table.to_batches()
    if len(batches) != 1 or any(
        c.null_count for c, f in zip(batches[0].columns, schema, strict=True) if not f.nullable
    ):
        return None
    return pa.RecordBatch.from_arrays(batches[0].columns, schema=schema)


def _fitted_column(table: pa.Table, field: "pa.Field[Any]", where: str) -> "pa.Array[Any]":
    if field.name not in table.column_names:
        raise DataError(missing_column(field.name, table.column_names, f"{where}: the result"))
    column = table.column(field.name)
    if not _may_become(column.type, field.type):
        raise DataError(
            f"{where}: column {field.name!r} is {column.type} in the result, but {field.type} in the schema"
        )
    differ = (
        f"{where}: column {field.name!r} is {column.type} in the result, {field.type} in the schema, and has a value"
    )
    loose = all_nullable(field.type)  # Arrow's own check takes what is in a null struct for a null of its own
    try:
        cast = column if column.type in (field.type, loose) else column.cast(loose)
        chunks = [tightened(chunk, field.type) for chunk in cast.chunks]
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{differ} that does not fit: {error}") from None
    if any(map(_became_infinite, column.chunks, chunks)):
        raise DataError(f"{differ} that is out of its range")
    if cast.null_count and not field.nullable:
        raise DataError(f"{where}: column {field.name!r} is NOT NULL in the schema, but the result has nulls in it")
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks or [pa.array([], field.type)])


def _became_infinite(given: "pa.Array[Any]", cast: "pa.Array[Any]") -> bool:
    """The one change that Arrow's cast makes in silence, at any depth: a number too large for a narrower float."""
    if not _narrows(given.type, cast.type):
        return False
    match given, cast:
        case pa.DictionaryArray(), _:
            return _became_infinite(given.dictionary_decode(), cast)
        case pa.StructArray(), pa.StructArray():
            return any(map(_became_infinite, given.flatten(), cast.flatten()))
        case pa.MapArray(), pa.MapArray():
            return any(map(_became_infinite, _entries(given), _entries(cast)))
        case (pa.ListArray() | pa.LargeListArray() | pa.FixedSizeListArray(), pa.ListArray() | pa.LargeListArray()):
            return _became_infinite(given.flatten(), cast.flatten())
    infinite = pc.is_inf(cast)
    return bool(pc.any(infinite).as_py()) and bool(pc.any(pc.and_(pc.is_finite(given), infinite)).as_py())


def _entries(maps: Any) -> "tuple[pa.Array[Any], pa.Array[Any]]":
    """Keys and items of this slice: Arrow's own properties give those of the whole array."""
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    return maps.keys.slice(first, last - first), maps.items.slice(first, last - first)


@lru_cache(maxsize=4096)
def _narrows(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether some float at some depth becomes narrower."""
    match given, wanted:
        case pa.DictionaryType(), _:
            return _narrows(given.value_type, wanted)
        case pa.StructType(), pa.StructType():
            return any(_narrows(one.type, other.type) for one, other in zip(given, wanted, strict=True))
        case pa.MapType(), pa.MapType():
            return _narrows(given.key_type, wanted.key_type) or _narrows(given.item_type, wanted.item_type)
        case (pa.ListType() | pa.LargeListType() | pa.FixedSizeListType(), pa.ListType() | pa.LargeListType()):
            return _narrows(given.value_type, wanted.value_type)
    return bool(pa.types.is_floating(given) and wanted.bit_width < given.bit_width)


def _may_become(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the types mean the same thing in another width, unit or encoding. Values are checked by the cast."""
    types = pa.types
    match given, wanted:
        case (_, _) if given == wanted or types.is_null(given):
            return True
        case (pa.DictionaryType(), _):
            return _may_become(given.value_type, wanted)
        case (pa.ListType() | pa.LargeListType() | pa.FixedSizeListType(), pa.ListType() | pa.LargeListType()):
            return _may_become(given.value_type, wanted.value_type)
        case (pa.StructType(), pa.StructType()):
            return _names(given) == _names(wanted) and all(
                _may_become(given.field(i).type, wanted.field(i).type) for i in range(given.num_fields)
            )
        case (pa.MapType(), pa.MapType()):
            return _may_become(given.key_type, wanted.key_type) and _may_become(given.item_type, wanted.item_type)
        case (pa.TimestampType(), pa.TimestampType()):
            return bool(given.tz == wanted.tz)
    return (
        (types.is_integer(given) and (types.is_integer(wanted) or types.is_floating(wanted)))
        or (types.is_floating(given) and types.is_floating(wanted))
        or (_is_text(given) and _is_text(wanted))
        or (_is_bytes(given) and _is_bytes(wanted))
        or (types.is_decimal(given) and types.is_decimal(wanted))
        or (types.is_time(given) and types.is_time(wanted))
        or (types.is_duration(given) and types.is_duration(wanted))
    )


def _names(struct: pa.StructType) -> list[str]:
    return [struct.field(i).name for i in range(struct.num_fields)]


def _is_text(data_type: pa.DataType) -> bool:
    return data_type in (pa.string(), pa.large_string(), pa.string_view())


def _is_bytes(data_type: pa.DataType) -> bool:
    return data_type in (pa.binary(), pa.large_binary(), pa.binary_view())
