"""How a state with a ttl stands in a snapshot: each value, element or entry beside the moment at which it ends."""

import pyarrow as pa

EXPIRY_FIELD = "expires_at"
_VALUE_FIELD = "value"


def with_expiry(data_type: pa.DataType) -> pa.DataType:
    return pa.struct([pa.field(_VALUE_FIELD, data_type), pa.field(EXPIRY_FIELD, pa.int64())])


def without_expiry(stored: pa.DataType) -> pa.DataType | None:
    """What the state would be stored as without its ttl; None: it has none."""
    match stored:
        case pa.MapType():
            item = _value_of(stored.item_type)
            return None if item is None else pa.map_(stored.key_type, item)
        case pa.ListType():
            element = _value_of(stored.value_type)
            return None if element is None else pa.list_(element)
        case _:
            return _value_of(stored)


def _value_of(entry: pa.DataType) -> pa.DataType | None:
    if not isinstance(entry, pa.StructType) or entry.get_field_index(_VALUE_FIELD) < 0:
        return None
    value = entry.field(_VALUE_FIELD).type
    return value if entry == with_expiry(value) else None
