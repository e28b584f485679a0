"""What may be null, at any depth: schemas that differ in nothing else, and values that are null where none may be."""

from typing import Any

import pyarrow as pa


class _DifferOtherwise(Exception):
    pass


def either_nullable(left: pa.Schema, right: pa.Schema) -> pa.Schema | None:
    """The schema that may be null where either may, at any depth; None when they differ in anything else."""
    try:
        return pa.schema(_fields(list(left), list(right)))
    except _DifferOtherwise:
        return None


def loosened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch under a schema of ``either_nullable``; no value is copied."""
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _fields(left: "list[pa.Field[Any]]", right: "list[pa.Field[Any]]") -> "list[pa.Field[Any]]":
    if [field.name for field in left] != [field.name for field in right]:
        raise _DifferOtherwise
    return [_field(one, other) for one, other in zip(left, right, strict=True)]


def _field(left: "pa.Field[Any]", right: "pa.Field[Any]") -> "pa.Field[Any]":
    """Under the left one's name: that of a list's elements says nothing."""
    return pa.field(left.name, _type(left.type, right.type), left.nullable or right.nullable)


def _type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if left == right:
        return left
    match left, right:
        case pa.StructType(), pa.StructType():
            return pa.struct(_fields(list(left), list(right)))
        case pa.ListType(), pa.ListType():
            return pa.list_(_field(left.value_field, right.value_field))
        case pa.LargeListType(), pa.LargeListType():
            return pa.large_list(_field(left.value_field, right.value_field))
        case pa.FixedSizeListType(), pa.FixedSizeListType() if left.list_size == right.list_size:
            return pa.list_(_field(left.value_field, right.value_field), left.list_size)
        case pa.MapType(), pa.MapType() if left.keys_sorted == right.keys_sorted:
            key, item = _field(left.key_field, right.key_field), _field(left.item_field, right.item_field)
            return pa.map_(key, item, left.keys_sorted)  # type: ignore[no-any-return, call-overload]  # the stubs know types only
        case _:
            raise _DifferOtherwise


def all_nullable(data_type: pa.DataType) -> pa.DataType:
    """The same type, where everything inside may be null (but a map's keys)."""
    match data_type:
        case pa.StructType():
            return pa.struct([_nullable(field) for field in data_type])
        case pa.ListType():
            return pa.list_(_nullable(data_type.value_field))
        case pa.LargeListType():
            return pa.large_list(_nullable(data_type.value_field))
        case pa.FixedSizeListType():
            return pa.list_(_nullable(data_type.value_field), data_type.list_size)
        case pa.MapType():
            key = data_type.key_field.with_type(all_nullable(data_type.key_type))
            return pa.map_(key, _nullable(data_type.item_field), data_type.keys_sorted)  # type: ignore[no-any-return, call-overload]  # the stubs know types only
        case _:
            return data_type


def _nullable(field: "pa.Field[Any]") -> "pa.Field[Any]":
    return pa.field(field.name, all_nullable(field.type))


def tightened(array: "pa.Array[Any]", data_type: pa.DataType) -> "pa.Array[Any]":
    """An array of ``all_nullable(data_type)`` as one of ``data_type``; ValueError, naming the field, if a null is in the way."""
    if array.type == data_type:
        return array
    _refuse_nulls(array, data_type)
    return array.view(data_type)


def _refuse_nulls(array: Any, data_type: pa.DataType) -> None:
    match data_type:
        case pa.StructType():
            present = array.filter(array.is_valid())
            for at, field in enumerate(data_type):
                _refuse_nulls_in(present.field(at), field)
        case pa.MapType():
            first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
            _refuse_nulls_in(array.items.slice(first, last - first), data_type.item_field)
        case pa.ListType() | pa.LargeListType() | pa.FixedSizeListType():
            _refuse_nulls_in(array.flatten(), data_type.value_field)


def _refuse_nulls_in(array: "pa.Array[Any]", field: "pa.Field[Any]") -> None:
    if array.null_count and not field.nullable:
        raise ValueError(f"its field {field.name!r} is NOT NULL")
    _refuse_nulls(array, field.type)
