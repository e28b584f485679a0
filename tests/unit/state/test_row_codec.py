"""Rows as bytes and back, for every type that state can have."""

import pyarrow as pa
import pytest

from cutwater.state.row_codec import RowCodec
from cutwater.testing.contract_tables import keys_of_every_type, values_of_every_type

COLUMNS = [
    *(column for batch in keys_of_every_type() for column in batch.columns),
    *(pa.array([*values, None, values[0]], kind) for kind, values in values_of_every_type()),
    pa.array(["a", None, "b", "a"]).dictionary_encode(),
    pa.array([0.0, -0.0, None, float("nan")], pa.float32()),
    pa.array([1, None], pa.duration("us")),
    pa.array([1, None], pa.time32("s")),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type)[:40])
def test_a_column_of_any_type_comes_back_as_it_was(column: "pa.Array[pa.Scalar[pa.DataType]]") -> None:
    codec = RowCodec(pa.schema([pa.field("v", column.type)]))
    [back] = codec.decode(codec.encode([column], len(column)))
    assert back.type == column.type
    assert list(map(repr, back.to_pylist())) == list(map(repr, column.to_pylist()))
    [nothing] = codec.decode([])
    assert (nothing.type, len(nothing)) == (column.type, 0)


def test_many_columns_of_all_kinds_share_a_row() -> None:
    columns = [column.slice(0, 2) for column in COLUMNS] * 3
    schema = pa.schema([pa.field(str(i), column.type) for i, column in enumerate(columns)])
    codec = RowCodec(schema)
    back = codec.decode(codec.encode(columns, 2)[::-1])
    assert list(map(repr, (column.to_pylist() for column in back))) == [
        repr(column.to_pylist()[::-1]) for column in columns
    ]
