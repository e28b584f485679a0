"""How values are encoded is no part of a stream's schema: a dictionary of strings is strings.

The exchange writes batches without what stands outside of them, and Arrow cannot do with views what it does with others.
"""

from typing import Any

import pyarrow as pa

_VIEWS: dict[pa.DataType, pa.DataType] = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def decoded_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of the same values, written out."""
    fields = [_field(field) for field in schema]
    return schema if all(map(pa.Field.equals, fields, schema)) else pa.schema(fields)


def decoded_type(data_type: pa.DataType) -> pa.DataType:
    match data_type:
        case pa.DictionaryType():
            return decoded_type(data_type.value_type)
        case pa.StructType():
            return pa.struct([_field(field) for field in data_type])
        case pa.ListType():
            return pa.list_(_field(data_type.value_field))
        case pa.LargeListType():
            return pa.large_list(_field(data_type.value_field))
        case pa.FixedSizeListType():
            return pa.list_(_field(data_type.value_field), data_type.list_size)
        case pa.MapType():
            key, item = _field(data_type.key_field), _field(data_type.item_field)
            return pa.map_(key, item, data_type.keys_sorted)  # type: ignore[no-any-return, call-overload]  # the stubs know types only
        case _:
            return _VIEWS.get(data_type, data_type)


def _field(field: "pa.Field[Any]") -> "pa.Field[Any]":
    return field.with_type(decoded_type(field.type))
