"""Rows of the program: in order, once, and refused by row and column when they do not fit."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.connectors.rows import from_rows
from cutwater.errors import ConfigError
from tests.unit.connectors.reading import read_all


@given(
    rows=st.lists(st.tuples(st.integers(-5, 5), st.one_of(st.none(), st.text())), max_size=20),
    sessions=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=8),
)
def test_rows_come_in_order_and_once_however_the_reading_is_cut(rows: Any, sessions: Any) -> None:
    read = read_all(from_rows(rows, "n long, word string"), 3, sessions)
    assert [tuple(row.values()) for row in read] == rows


def test_rows_may_be_tuples_dicts_lists_and_for_one_column_bare_values() -> None:
    mixed = from_rows([(1, "a"), {"word": "b", "n": 2}, [3, "c"], {"n": 4, "word": None}], "n long, word string")
    assert [tuple(row.values()) for row in read_all(mixed)] == [(1, "a"), (2, "b"), (3, "c"), (4, None)]
    assert read_all(from_rows(["a", None], "word string")) == [{"word": "a"}, {"word": None}]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(1, "a"), ("x", "b")], "row 1, column 'n': 'x' is no int64"),
        ([(1, "a"), (1,)], "row 1 has 1 values, the schema 2 columns"),
        ([{"n": 1, "wrod": "a"}], "row 0 has 'wrod'; the columns are n, word"),
        ([1], "row 0 is 1; a tuple, dict or row is needed"),
        ([(2**70, "a")], "row 0, column 'n'"),
        ([{"n": 1}], "row 0 lacks column 'word'; write None for it"),
        ([(1, "a"), (1.5, "b")], "row 1, column 'n': 1.5 is no int64 (1.5 is not a whole number)"),
        ([(None, "a")], "row 0, column 'n' is None, but the schema says NOT NULL"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_at_the_call(rows: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_rows(rows, "n long not null, word string")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("value", "data_type"),
    [
        ("abc", "array<string>"),
        ([1.5], "array<long>"),
        ({"y": 1}, "struct<x:long>"),
        ({"a": 1.5}, "map<string,long>"),
    ],
)
def test_a_value_that_would_be_changed_is_refused(value: Any, data_type: str) -> None:
    with pytest.raises(ConfigError, match="from_rows: row 1, column 'v': ") as caught:
        from_rows([(None,), (value,)], f"v {data_type}")
    assert repr(value) in str(caught.value)


def test_structs_may_be_written_as_tuples_beside_dicts_at_any_depth() -> None:
    source = from_rows([([{"x": 1}],), ([(2,)],)], "v array<struct<x:long>>")
    assert source.schema.names == ["v"]


def test_an_array_may_stand_in_a_column_that_is_not_null() -> None:
    assert from_rows([(np.array([1, 2]),)], pa.schema([pa.field("v", pa.list_(pa.int64()), nullable=False)]))


def test_a_map_whose_keys_no_dict_can_hold_is_written_as_pairs() -> None:
    source = from_rows([([({"a": 1}, 5)], [([1, 2], 6)])], "s map<struct<a:long>,long>, l map<array<long>,long>")
    assert source.schema.names == ["s", "l"]
    with pytest.raises(ConfigError, match=r"1\.5 is not a whole number"):
        from_rows([([({"a": 1.5}, 5)],)], "s map<struct<a:long>,long>")
