"""Rows as user functions see them."""

import math
import pickle
from collections import UserDict
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cutwater.errors import DataError
from cutwater.rows import batch_of, row_of, row_type, rows_of
from cutwater.schema import arrow_schema

WORDS = arrow_schema("word string, n long")


def words(*rows: tuple[str | None, int | None]) -> pa.RecordBatch:
    return batch_of(list(rows), WORDS, "test")


def test_a_row_is_read_by_attribute_name_and_position() -> None:
    row: Any = rows_of(words(("a", 1)))[0]
    assert (row.word, row["word"], row[0], row[-1], row[0:2]) == ("a", "a", "a", 1, ("a", 1))
    assert len(row) == 2
    assert list(row) == ["a", 1]
    assert row == ("a", 1)
    assert hash(row) == hash(("a", 1))
    assert row._asdict() == {"word": "a", "n": 1}
    assert row._replace(n=2) == ("a", 2)
    assert repr(row) == "Row(word='a', n=1)"


def test_a_wrong_name_says_which_columns_exist() -> None:
    (row,) = rows_of(words(("a", 1)))
    with pytest.raises(AttributeError, match=r"no column 'wrd' \(did you mean 'word'\?\); available: word, n"):
        _ = row.wrd
    with pytest.raises(KeyError, match="no column 'wrd'"):
        _ = row["wrd"]
    with pytest.raises(ValueError, match="no column 'm'"):
        row._replace(m=1)


def test_names_that_are_methods_of_tuples_or_no_identifiers_still_work() -> None:
    schema = arrow_schema("count long, `my col` long, _fields long, `class` long")
    row: Any = rows_of(batch_of([(1, 2, 3, 4)], schema, "test"))[0]
    assert row.count == 1
    assert row["my col"] == 2
    assert row["_fields"] == 3
    assert row["class"] == 4
    assert row._fields == ("count", "my col", "_fields", "class")


def test_rows_of_equal_schemas_share_a_class_and_survive_pickling() -> None:
    one, two = rows_of(words(("a", 1), ("b", 2)))
    assert type(one) is type(two) is row_type(("word", "n"))
    again = pickle.loads(pickle.dumps(one))  # noqa: S301 (our own bytes)
    assert again == one
    assert again.word == "a"


def test_structs_come_as_rows_and_maps_as_dicts_at_any_depth() -> None:
    schema = arrow_schema("s struct<x:int,m:map<string,struct<y:int>>>, l array<struct<z:int>>, m map<string,int>")
    value = ((1, {"k": (2,)}), [(3,), None], {"a": 4})
    batch = batch_of([value, (None, None, None)], schema, "test")
    row, nulls = rows_of(batch)
    assert row.s.x == 1
    assert row.s.m["k"].y == 2
    assert row.l[0].z == 3
    assert row.l[1] is None
    assert row.m == {"a": 4}
    assert nulls == (None, None, None)
    assert batch_of([row, nulls], schema, "test").equals(batch)


def test_a_map_may_have_rows_and_nan_as_keys() -> None:
    batch = batch_of(
        [({(1,): "a"}, {math.nan: 2})], arrow_schema("s map<struct<x:int>,string>, f map<double,int>"), "t"
    )
    row: Any = rows_of(batch)[0]
    assert [key.x for key in row.s] == [1]
    assert row.s[(1,)] == "a"
    assert row.f[math.nan] == 2


def test_a_map_with_a_key_twice_is_refused_where_a_dict_would_lose_one() -> None:
    twice = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))
    with pytest.raises(DataError, match="the same key twice"):
        rows_of(pa.RecordBatch.from_arrays([twice], names=["m"]))


def test_every_type_makes_the_way_there_and_back() -> None:
    schema = arrow_schema("d decimal(10,2), t timestamp, n timestamp_ntz, b binary, f float, i tinyint, o boolean")
    moment = datetime(2024, 5, 1, 12, 30, 15, 123456, tzinfo=UTC)
    value = (Decimal("1.25"), moment, moment.replace(tzinfo=None), b"\xff", 0.5, -128, True)
    assert rows_of(batch_of([value], schema, "test")) == [value]


@pytest.mark.parametrize(
    "results",
    [
        [("a", 1), ("b", 2)],
        [{"word": "a", "n": 1}, {"n": 2, "word": "b"}],
        [("a", 1), {"n": 2, "word": "b"}],
        rows_of(words(("a", 1), ("b", 2))),
        (row for row in [("a", 1), ("b", 2)]),
        [("a", 1.0), ("b", np.int64(2))],
    ],
)
def test_results_may_be_tuples_dicts_rows_or_mixed(results: Any) -> None:
    assert batch_of(results, WORDS, "test").to_pylist() == [{"word": "a", "n": 1}, {"word": "b", "n": 2}]


def test_one_column_takes_bare_values_and_rows() -> None:
    schema = arrow_schema("n long")
    assert batch_of([1, (2,), {"n": 3}, None], schema, "test").column(0).to_pylist() == [1, 2, 3, None]
    assert batch_of([1, 2], schema, "test").column(0).to_pylist() == [1, 2]


def test_one_nested_column_takes_its_own_kind_of_value() -> None:
    maps = arrow_schema("m map<string,int>")
    assert rows_of(batch_of([{"a": 1}, {"m": {"b": 2}}], maps, "test")) == [({"a": 1},), ({"b": 2},)]
    structs = arrow_schema("s struct<x:int,y:int>")
    assert rows_of(batch_of([(1, 2), {"x": 1, "y": 2}, ((1, 2),)], structs, "test")) == [((1, 2),)] * 3
    lists = arrow_schema("l array<string>")
    assert rows_of(batch_of([["a", "b"], (["c"],)], lists, "test")) == [(["a", "b"],), (["c"],)]


def test_no_results_make_an_empty_batch_of_the_schema() -> None:
    batch = batch_of([], WORDS, "test")
    assert batch.num_rows == 0
    assert batch.schema == WORDS


@pytest.mark.parametrize(
    ("results", "says"),
    [
        (
            [("a", 1), ("b", "x")],
            r"map 'm': column 'n' is int64, which cannot hold 'x' \(str\) of the result \('b', 'x'\): a whole number is needed",
        ),
        ([("a", 1), ("b", 1.5)], "cannot hold 1.5 .*not a whole number"),
        ([("a", 1), ("b", Decimal("1.5"))], "not a whole number"),
        ([("a", 1), ("b", float("nan"))], "cannot hold nan"),
        ([("a", 2**63)], "cannot hold 9223372036854775808"),
        ([(5, 1)], "column 'word' is string, which cannot hold 5"),
        ([("a", 1, 2)], r"has 3 values, the schema has 2 columns \(word, n\)"),
        ([("a", 1), None], r"the result None is a NoneType \(is a return missing\?\); needed is a tuple, dict or row"),
        ([("a", 1), 5], "the result 5 is a int; needed is a tuple, dict or row"),
        ([{"word": "a"}], "lacks column 'n'; columns: word, n"),
        ([{"word": "a", "n": 1, "m": 1}], "has 'm'.*which is no column"),
        ([{"wrd": "a", "n": 1}], r"lacks column 'word' and has 'wrd' \(did you mean 'word'\?\)"),
    ],
)
def test_a_result_that_does_not_fit_is_named(results: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        batch_of(results, WORDS, "map 'm'")


def test_a_string_is_not_taken_for_a_list_of_letters() -> None:
    with pytest.raises(DataError, match=r"cannot hold 'xyz' .*a list is needed"):
        batch_of([["a"], "xyz"], arrow_schema("l array<string>"), "test")


@pytest.mark.parametrize(
    ("data_type", "value", "says"),
    [
        ("array<long>", [1, 1.5], "1.5 is not a whole number"),
        ("array<array<long>>", [[1], None, [2.5]], "2.5 is not a whole number"),
        ("array<array<string>>", [["a"], "bc"], "a list is needed"),
        ("array<binary>", bytearray(b"abc"), "a list is needed"),
        ("struct<x:long>", (1.5,), "1.5 is not a whole number"),
        ("struct<x:long,y:long>", {"x": 1}, "its fields are x, needed are x, y"),
        ("struct<x:long>", {"y": 1}, "its fields are y, needed are x"),
        ("struct<x:long,y:long>", [("x", 1)], "a row, tuple or dict of x, y is needed"),
        ("struct<x:long not null>", {"x": None}, "its field 'x' is NOT NULL"),
        ("array<struct<x:long>>", [{"x": 1}, {"X": 1}], "its fields are X, needed are x"),
        ("map<string,long>", {"a": 1.5}, "1.5 is not a whole number"),
        ("map<long,string>", {1.5: "a"}, "1.5 is not a whole number"),
        ("map<string,struct<x:long>>", {"a": {"z": 1}}, "its fields are z"),
        ("float", 1e300, "1e.300 is out of range"),
        ("array<float>", [1e300], "1e.300 is out of range"),
        ("date", datetime(2024, 5, 1, 12, tzinfo=UTC), "has a time of day"),
        ("timestamp_ntz", datetime(2024, 5, 1, 12, tzinfo=UTC), "must not have a time zone"),
        ("timestamp", 1.5, "a datetime.datetime is needed"),
        ("timestamp", 1714564800, "a datetime.datetime is needed"),
        ("timestamp", date(2024, 5, 1), "a datetime.datetime is needed"),
        ("timestamp_ntz", "2024-05-01", "a datetime.datetime is needed"),
        ("date", 5, "a datetime.date is needed"),
        ("date", np.datetime64("2024-05-01T12"), "has a time of day"),
        ("string", b"bytes", "a string is needed"),
        ("array<string>", ["a", b"bytes"], "a string is needed"),
        ("binary", "text", "bytes are needed"),
        ("double", True, "a number is needed"),
        ("float", True, "a number is needed"),
        ("double", Decimal("0.1"), "a number is needed"),
    ],
)
def test_a_value_that_would_be_changed_is_refused_at_any_depth(data_type: str, value: Any, says: str) -> None:
    schema = arrow_schema(f"v {data_type}, n long")
    with pytest.raises(DataError, match=f"map 'm': column 'v' is .*{says}") as raised:
        batch_of([(None, 0), (value, 1)], schema, "map 'm'")
    assert repr(value) in str(raised.value)


def test_a_moment_finer_than_its_column_is_refused() -> None:
    moment = datetime(2024, 5, 1, 12, 0, 0, 1, tzinfo=UTC)
    with pytest.raises(DataError, match="column 'ts' is timestamp"):
        batch_of([(moment,)], pa.schema([("ts", pa.timestamp("ms", "UTC"))]), "test")


def test_values_that_only_look_different_are_taken() -> None:
    schema = arrow_schema("l array<long>, m map<string,double>, s struct<x:long,y:string>, f float, d date")
    value = (np.array([1, 2]), [("a", 1)], {"y": "b", "x": 1.0}, 0.1, datetime(2024, 5, 1, tzinfo=UTC))
    (row,) = rows_of(batch_of([value], schema, "test"))
    assert row[:3] == ([1, 2], {"a": 1.0}, (1, "b"))
    assert row.f == pytest.approx(0.1)
    assert row.d == date(2024, 5, 1)


NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def test_a_moment_without_a_time_zone_is_one_of_utc() -> None:
    (row,) = rows_of(batch_of([(NOON.replace(tzinfo=None),)], arrow_schema("ts timestamp"), "test"))
    assert row.ts == NOON


@pytest.mark.parametrize(
    ("data_type", "value", "kept"),
    [
        ("long", pa.scalar(3), 3),
        ("long", pa.scalar(3, pa.int8()), 3),
        ("long", pa.scalar(3.0), 3),
        ("long", pa.scalar(None, pa.int64()), None),
        ("long", np.float64(3.0), 3),
        ("long", np.array(3), 3),
        ("float", pa.scalar(1.5), 1.5),
        ("double", pa.scalar(1.5, pa.float32()), 1.5),
        ("double", pa.scalar(3), 3.0),
        ("double", np.array(1.5), 1.5),
        ("string", pa.scalar("a", pa.large_string()), "a"),
        ("string", pa.scalar("a").cast(pa.dictionary(pa.int8(), pa.string())), "a"),
        ("decimal(5,2)", np.int64(3), Decimal("3.00")),
        ("decimal(5,2)", pa.scalar(Decimal("1.5")), Decimal("1.50")),
        ("date", np.datetime64("2024-05-01"), date(2024, 5, 1)),
        ("date", pa.scalar(datetime(2024, 5, 1, tzinfo=UTC)), date(2024, 5, 1)),
        ("timestamp", np.datetime64("2024-05-01T12"), NOON),
        ("timestamp", pa.scalar(NOON, pa.timestamp("s", "Europe/Paris")), NOON),
        ("timestamp_ntz", np.datetime64("2024-05-01T12", "ns"), NOON.replace(tzinfo=None)),
        ("timestamp_ntz", pa.scalar(NOON.replace(tzinfo=None), pa.timestamp("ns")), NOON.replace(tzinfo=None)),
        ("array<long>", pa.scalar([1, None]), [1, None]),
        ("array<long>", pa.array([1.0, 2.0]), [1, 2]),
        ("array<long>", pl.Series([1.0, 2.0]), [1, 2]),
        ("array<int>", [pa.scalar(1), np.int8(2), 3, None], [1, 2, 3, None]),
        ("array<array<int>>", np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        ("struct<x:long,y:string>", pa.scalar({"y": "b", "x": 1}), (1, "b")),
        ("struct<x:long,y:string>", {"x": pa.scalar(1), "y": np.str_("b")}, (1, "b")),
        ("struct<x:long,y:string>", UserDict(x=1, y="b"), (1, "b")),
        ("array<struct<x:long>>", [{"x": 1}, (2,)], [(1,), (2,)]),
        ("map<string,long>", pa.scalar([("a", 1)], pa.map_(pa.string(), pa.int8())), {"a": 1}),
        ("map<string,struct<x:long>>", {"a": {"x": 1}, "b": (np.int32(2),)}, {"a": (1,), "b": (2,)}),
        ("map<string,long>", UserDict(a=1), {"a": 1}),
    ],
)
def test_values_of_numpy_arrow_and_polars_count_as_what_they_stand_for(data_type: str, value: Any, kept: Any) -> None:
    schema = arrow_schema(f"v {data_type}, n long")
    rows = rows_of(batch_of([(value, 0), (None, 1), (value, 2)], schema, "test"))
    assert [row.v for row in rows] == [kept, None, kept]


@pytest.mark.parametrize(
    ("data_type", "value", "says"),
    [
        ("long", pa.scalar(3.5), "not a whole number"),
        ("long", np.bool_(True), "Expected integer"),
        ("long", pa.scalar(True), "Expected integer"),
        ("long", pa.scalar("3"), "a whole number is needed"),
        ("int", pa.scalar(2**40), "Value 1099511627776 too large"),
        ("float", pa.scalar(1e300), "out of range"),
        ("array<int>", pa.scalar([1.5]), "not a whole number"),
        ("array<string>", pa.scalar("ab"), "a list is needed"),
        ("timestamp_ntz", np.datetime64(1, "ns"), "would lose data"),
        ("timestamp_ntz", pd.Timestamp(1), "nanoseconds"),
        ("timestamp_ntz", pa.scalar(NOON, pa.timestamp("us", "UTC")), "must not have a time zone"),
        ("date", pa.scalar(NOON, pa.timestamp("us", "UTC")), "has a time of day"),
        ("struct<x:long>", pa.scalar({"y": 1}), "its fields are y"),
    ],
)
def test_values_of_numpy_arrow_and_polars_that_would_be_changed_are_refused(
    data_type: str, value: Any, says: str
) -> None:
    with pytest.raises(DataError, match=f"column 'v' is .*{says}"):
        batch_of([(None, 0), (value, 1)], arrow_schema(f"v {data_type}, n long"), "test")


def test_null_in_a_not_null_column_is_refused() -> None:
    with pytest.raises(DataError, match=r"column 'n' is NOT NULL, but the result \('b', None\)"):
        batch_of([("a", 1), ("b", None)], arrow_schema("word string, n long not null"), "test")


def test_long_values_are_shortened_in_messages() -> None:
    with pytest.raises(DataError) as raised:
        batch_of([("a", "x" * 100_000)], WORDS, "test")
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("result", [("a", 1), {"n": 1, "word": "a"}, rows_of(words(("a", 1)))[0]])
def test_one_result_becomes_a_row(result: Any) -> None:
    row = row_of(result, WORDS, "test")
    assert (row.word, row.n) == ("a", 1)
    with pytest.raises(DataError, match="reduce: the result None is a NoneType"):
        row_of(None, WORDS, "reduce")
