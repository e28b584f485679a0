"""Schemas that differ only in what may be null: what holds the values of both, and batches of the one as batches of the other."""

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
