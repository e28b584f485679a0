"""Rows as bytes and back, for every type that state can have."""

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.state.row_codec import RowCodec
from cutwater.testing.contract_tables import keys_of_every_type, values_of_every_type

COLUMNS = [
    *(column for batch in keys_of_every_type() for column in batch.columns),
    *(pa.array([*values, None, values[0]], kind) for kind, values in values_of_every_type()),
    pa.array(["a", None, "b", "a"]).dictionary_encode(),
    pa.array([0.0, -0.0, None, float("nan")], pa.float32()),
    pa.array([1, None], pa.duration("us")),
    pa.array([1, None], pa.time32("s")),
    pa.array([[{"a": [1]}, None], [], None, [{"a": None}]], pa.list_(pa.struct([("a", pa.list_(pa.int8()))]))),
    pa.array([[["x", None], None], [[]], None, [["", "yz"]]], pa.list_(pa.list_(pa.string()))),
    pa.array([[("k", 0.5)], None, [], [("a", None), ("b", -0.0)]], pa.map_(pa.string(), pa.float32())),
    pa.array([[decimal.Decimal("1.5"), None], None], pa.list_(pa.decimal128(9, 1))),
    pa.array([[b"abcd", None], [None]], pa.list_(pa.binary(4))),
    pa.array([{}, None, {}], pa.struct([])),
    pa.array([[{}, None], []], pa.list_(pa.struct([]))),
    pa.array([{"d": "x"}, {"d": None}, None], pa.struct([("d", pa.dictionary(pa.int8(), pa.string()))])),
    pa.array([[None], None], pa.list_(pa.null())),
    pa.array([[1, 2], None], pa.list_(pa.int64(), 2)),
    pa.array([[dt.time(1, 2), None], None], pa.list_(pa.time64("us"))),
]


@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type)[:40])
def test_a_column_of_any_type_comes_back_as_it_was(column: "pa.Array[pa.Scalar[pa.DataType]]", *, leaves: bool) -> None:
    codec = RowCodec(pa.schema([pa.field("v", column.type)]), leaves=leaves)
    [back] = codec.decode(codec.encode([column], len(column)))
    back.validate(full=True)
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


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type)[:40])
def test_part_of_a_column_is_taken_as_such(column: "pa.Array[pa.Scalar[pa.DataType]]") -> None:
    whole = pa.concat_arrays([column, column, column])
    codec = RowCodec(pa.schema([pa.field("v", column.type)]))
    for part in (whole.slice(1), whole.slice(2, len(column)), whole.slice(len(whole))):
        [back] = codec.decode(codec.encode([part], len(part)))
        assert list(map(repr, back.to_pylist())) == list(map(repr, part.to_pylist()))


def test_what_stands_behind_a_null_is_left_out() -> None:
    """Arrow allows bytes and elements there."""
    texts = pa.Array.from_buffers(
        pa.string(), 3, [pa.py_buffer(b"\x05"), pa.array([0, 1, 2, 3], pa.int32()).buffers()[1], pa.py_buffer(b"abc")]
    )
    offsets = pa.array([0, 1, 3, 3], pa.int32()).buffers()[1]
    lists = pa.Array.from_buffers(pa.list_(pa.string()), 3, [pa.py_buffer(b"\x05"), offsets], children=[texts])
    assert lists.to_pylist() == [["a"], None, []]
    codec = RowCodec(pa.schema([pa.field("v", lists.type)]))
    [back] = codec.decode(codec.encode([lists], 3))
    assert back.to_pylist() == [["a"], None, []]
    inner = pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), texts)
    [back] = codec.decode(codec.encode([inner], 1))
    assert back.to_pylist() == [["a", None, "c"]]


NESTED = st.recursive(
    st.sampled_from([pa.int64(), pa.string(), pa.float32(), pa.bool_(), pa.binary(), pa.timestamp("ms")]),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: pa.struct([(f"f{i}", k) for i, k in enumerate(kinds)])
        ),
    ),
    max_leaves=5,
)


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    t = pa.types
    if isinstance(kind, pa.StructType):
        found: st.SearchStrategy[Any] = st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    elif isinstance(kind, pa.MapType):
        found = st.dictionaries(st.text(max_size=3), values_of(kind.item_type), max_size=3).map(
            lambda d: list(d.items())
        )
    elif isinstance(kind, pa.ListType):
        found = st.lists(values_of(kind.value_type), max_size=3)
    elif t.is_string(kind):
        found = st.text(max_size=4)
    elif t.is_binary(kind):
        found = st.binary(max_size=4)
    elif t.is_boolean(kind):
        found = st.booleans()
    elif t.is_floating(kind):
        found = st.floats(width=32)
    else:
        found = st.integers(-(10**12), 10**12)
    return st.one_of(st.none(), found)


@settings(max_examples=60)
@given(data=st.data(), kind=NESTED)
def test_nested_values_of_any_depth_come_back_in_any_order(data: st.DataObject, kind: pa.DataType) -> None:
    column = pa.array(data.draw(st.lists(values_of(kind), max_size=6)), kind)
    codec = RowCodec(pa.schema([pa.field("v", kind)]))
    [back] = codec.decode(codec.encode([column], len(column))[::-1])
    back.validate(full=True)
    assert list(map(repr, back.to_pylist())) == list(map(repr, column.to_pylist()[::-1]))
