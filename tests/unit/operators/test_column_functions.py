"""Select, with_columns, filter and map_batches on whole columns."""

import pickle
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pytest

from cutwater.errors import ConfigError, DataError, SchemaError, UserCodeError
from cutwater.nullability import all_nullable
from cutwater.operators.column_functions import FilterExpression, MapBatches, Select, WithColumns
from cutwater.operators.operator import Operator
from cutwater.operators.polars_arrow import fitted_table
from cutwater.rows import batch_of
from cutwater.schema import arrow_schema
from tests.unit.operators.collecting import Collected

WORDS = arrow_schema("word string, n long")


def run(operator: Operator, *rows: tuple[Any, ...], schema: pa.Schema = WORDS) -> Collected:
    """Runs a batch, and checks that what comes out is what the operator declared."""
    declared = operator.output_schema([schema])
    out = Collected()
    operator.process(batch_of(list(rows), schema, "test"), 0, out)
    assert all(batch.schema == declared for batch in out.batches)
    return out


def test_select_takes_names_expressions_and_sql() -> None:
    select = Select("word", pl.col("n") + 1, "upper(word) AS loud", big=pl.col("n") > 1)
    out = run(select, ("a", 1), ("b", 2))
    assert out.rows() == [("a", 2, "A", False), ("b", 3, "B", True)]
    assert select.output_schema([WORDS]) == arrow_schema("word string, n long, loud string, big boolean")


def test_a_literal_alone_has_a_row_for_each_input_row() -> None:
    assert run(Select(pl.lit("x").alias("x")), ("a", 1), ("b", 2)).rows() == [("x",), ("x",)]


def test_columns_may_be_swapped_and_selected_by_pattern() -> None:
    assert run(Select(pl.col("n").alias("word"), pl.col("word").alias("n")), ("a", 1)).rows() == [(1, "a")]
    assert run(Select(pl.all().exclude("n")), ("a", 1)).rows() == [("a",)]


def test_a_name_that_is_no_sql_identifier_is_a_column_if_there_is_one() -> None:
    assert run(Select("my col"), (1,), schema=arrow_schema("`my col` long")).rows() == [(1,)]


def test_plain_columns_pass_through_as_the_same_buffers() -> None:
    batch = batch_of([("a", 1)], WORDS, "test")
    out = Collected()
    Select("word", pl.col("n") + 1).process(batch, 0, out)
    (before, after) = (given.column("word").buffers()[2] for given in (batch, out.batches[0]))
    assert before is not None
    assert after is not None
    assert before.address == after.address


def test_with_columns_replaces_in_place_and_adds_behind() -> None:
    operator = WithColumns(n=pl.col("n") * 2, length="length(word)")
    assert run(operator, ("abc", 1)).rows() == [("abc", 2, 3)]
    assert operator.output_schema([WORDS]) == arrow_schema("word string, n long, length long")


def test_types_are_the_same_in_every_batch_and_are_sparks() -> None:
    schema = arrow_schema("w string, t timestamp, b binary")
    operator = Select(
        pl.col("w").str.len_chars().alias("unsigned"),
        pl.col("w").str.split(" ").alias("parts"),
        pl.col("t").dt.truncate("1h"),
        pl.struct("w", "b").alias("s"),
        pl.col("w").cast(pl.Categorical).alias("c"),
    )
    moment = datetime(2024, 5, 1, 12, 30, tzinfo=UTC)
    out = run(operator, ("a b", moment, b"x"), schema=schema)
    assert operator.output_schema([schema]) == arrow_schema(
        "unsigned long, parts array<string>, t timestamp, s struct<w:string,b:binary>, c string"
    )
    assert out.rows() == [(3, ["a", "b"], moment.replace(minute=0), {"w": "a b", "b": b"x"}, "a b")]


def test_maps_pass_through() -> None:
    schema = arrow_schema("m map<string,long>, n long")
    assert run(WithColumns(n=pl.col("n") + 1), ({"a": 1}, 1), schema=schema).rows() == [([("a", 1)], 2)]


def test_not_null_columns_that_pass_through_stay_so() -> None:
    schema = arrow_schema("word string not null, n long")
    assert Select("word").output_schema([schema]) == arrow_schema("word string not null")
    assert run(WithColumns(n=pl.col("n") + 1), ("a", 1), schema=schema).rows() == [("a", 2)]


@pytest.mark.parametrize("operator", [Select("wrd"), WithColumns(x=pl.col("wrd")), FilterExpression("wrd > 1")])
def test_an_unknown_column_is_named_with_those_that_exist(operator: Operator) -> None:
    with pytest.raises(SchemaError, match=r"no column 'wrd' \(did you mean 'word'\?\); available: word, n"):
        operator.output_schema([WORDS])


@pytest.mark.parametrize(
    ("operator", "says"),
    [
        (Select("n >"), "select: the SQL 'n >' cannot be read"),
        (Select(pl.col("n").str.to_uppercase()), "select: .*expected `String`"),
        (Select("n", pl.col("word").alias("n")), "select: two expressions give the same column"),
        (Select(pl.lit(None).alias("x")), "column 'x' is always null"),
        (Select(x=pl.col("n").cast(pl.Int128)), "column 'x' is Int128, a type that only Polars has"),
        (WithColumns(x=pl.struct(pl.col("n").cast(pl.Int128))), "column 'x' is Struct"),
        (Select(x=pl.lit(None, pl.Object)), "column 'x' is Object"),
        (WithColumns(x=17), "with_columns: 17 is neither"),  # type: ignore[arg-type]
        (FilterExpression("n + 1"), r"filter: 'n \+ 1' gives int64, not one boolean"),
    ],
)
def test_what_cannot_work_is_refused_when_the_pipeline_is_written(operator: Operator, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        operator.output_schema([WORDS])


@pytest.mark.parametrize(
    "expression", ["sum(n)", pl.col("n") - pl.col("n").shift(), "count(*)", pl.sum("n").over("word")]
)
def test_an_expression_over_several_rows_is_refused_because_batches_are_accidental(expression: Any) -> None:
    with pytest.raises(ConfigError, match="looks at several rows at once"):
        WithColumns(x=expression).output_schema([WORDS])
    with pytest.raises(ConfigError, match="looks at several rows at once"):
        FilterExpression(expression).output_schema([WORDS])


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("n in (3, 1, 2)", [1, 2]),
        ("n in (2)", [2]),
        ("n not in (2, 3)", [1, 4]),
        ("upper(word) in ('B', 'C') and n > 2", [4]),
        (pl.col("n").is_in([4, 1]), [1, 4]),
        (pl.col("n").is_in(pl.Series([4, 1])), [1, 4]),
    ],
)
def test_a_row_may_be_looked_up_among_constants(condition: Any, kept: list[int]) -> None:
    rows = [("a", 1), ("b", 2), ("c", 4), ("d", None)]
    assert [n for _, n in run(FilterExpression(condition), *rows).rows()] == kept
    assert [n for row in rows for _, n in run(FilterExpression(condition), row).rows()] == kept, "a batch for each row"
    assert [yes for (yes,) in run(Select(condition), *rows[:3]).rows()] == [row[1] in kept for row in rows[:3]]


def test_constants_beside_the_rows_are_refused() -> None:
    with pytest.raises(ConfigError, match="looks at several rows at once"):
        Select(pl.col("n") + pl.lit(pl.Series([1, 2]))).output_schema([WORDS])


def test_lists_of_one_row_may_be_summed() -> None:
    operator = Select(pl.col("l").list.eval(pl.element().sum()), total=pl.col("l").list.sum())
    assert run(operator, ([1, 2],), schema=arrow_schema("l array<long>")).rows() == [([3], 3)]


def test_an_expression_that_changes_the_number_of_rows_is_refused() -> None:
    with pytest.raises(ConfigError, match="changes the number of rows"):
        Select(pl.col("word").str.split(" ").explode()).output_schema([WORDS])


def test_nothing_to_compute_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one"):
        Select()
    with pytest.raises(ConfigError, match="at least one"):
        WithColumns()


@pytest.mark.parametrize("condition", ["n > 1", pl.col("n") > 1])
def test_filter_keeps_what_is_true_and_drops_null(condition: Any) -> None:
    assert run(FilterExpression(condition), ("a", 1), ("b", 2), ("c", None)).rows() == [("b", 2)]


def test_filter_emits_the_same_batch_when_all_stay_and_none_when_none_does() -> None:
    out = Collected()
    batch = batch_of([("a", 1)], WORDS, "test")
    FilterExpression("n > 0").process(batch, 0, out)
    assert out.batches[0] is batch
    assert run(FilterExpression("n > 5"), ("a", 1)).batches == []
    assert run(FilterExpression("true"), ("a", 1)).rows() == [("a", 1)]


def test_map_batches_sees_and_returns_frames_and_columns_are_put_in_order() -> None:
    operator = MapBatches(lambda df: df.select(twice=pl.col("n") * 2, word="word"), "word string, twice int")
    assert run(operator, ("a", 1), ("b", 2)).rows() == [("a", 2), ("b", 4)]


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (lambda df: df.select("word"), "no column 'n'; available: word"),
        (lambda df: df.with_columns(m=1), "has a column 'm', which the schema has not; drop it .* has: word, n$"),
        (
            lambda df: df.with_columns(n=pl.lit("x")),
            "column 'n' is (large_)?string.* in the result, but int32 in the schema",
        ),
        (lambda df: df.with_columns(n=pl.lit(1.0)), "column 'n' is double in the result, but int32 in the schema"),
        (lambda df: df.with_columns(n=pl.lit(2**40)), "column 'n' is int64 .* int32 .*does not fit"),
        (lambda df: None, "returned a NoneType"),
    ],
)
def test_a_frame_that_does_not_fit_its_schema_is_named(fn: Any, says: str) -> None:
    with pytest.raises(DataError, match=f"map_batches: .*{says}"):
        run(MapBatches(fn, "word string, n int"), ("a", 1))


def test_a_number_too_large_for_a_narrower_float_is_refused_and_infinity_is_not() -> None:
    narrow = MapBatches(lambda df: df.select(x=pl.col("x") * 10), "x float")
    wide = arrow_schema("x double")
    assert run(narrow, (0.5,), (float("inf"),), (None,), schema=wide).rows() == [(5.0,), (float("inf"),), (None,)]
    with pytest.raises(DataError, match=r"column 'x' is double in the result, float in the schema.*out of its range"):
        run(narrow, (0.5,), (1e300,), schema=wide)


def test_an_exception_in_map_batches_names_the_users_line() -> None:
    with pytest.raises(UserCodeError, match="ColumnNotFoundError") as raised:
        run(MapBatches(lambda df: df.select("nope"), WORDS), ("a", 1))
    assert str(raised.value.user_line).startswith("test_column_functions.py:")


def test_a_value_that_fails_at_run_time_is_a_data_error() -> None:
    with pytest.raises(DataError, match="select: "):
        run(Select(pl.col("word").cast(pl.Int64)), ("abc", 1))


def test_operators_travel_to_the_workers_also_after_their_schema_was_asked_for() -> None:
    for operator in (Select("word", pl.col("n") + 1), WithColumns(n="n + 1"), FilterExpression(pl.col("n") > 0)):
        operator.output_schema([WORDS])
        again = pickle.loads(cloudpickle.dumps(operator))  # noqa: S301 (our own bytes)
        assert len(run(again, ("a", 1)).rows()) == 1


MAP = pa.map_(pa.string(), pa.float64())


@pytest.mark.parametrize(
    ("narrow", "column", "at"),
    [
        ("struct<x:float>", pa.array([{"x": 1.0}, {"x": float("inf")}, None, {"x": 1e300}]), 3),
        ("array<float>", pa.array([[1.0, None], [float("inf")], None, [], [0.5, -1e300]]), 4),
        ("array<float>", pa.array([[1.0], None, [float("-inf")], [1e300]], pa.list_(pa.float64(), 1)), 3),
        ("map<string,float>", pa.array([[("a", 1.0)], None, [("b", float("inf"))], [("c", 1e300)]], MAP), 3),
        ("map<float,string>", pa.array([[(1.0, "a")], None, [(1e300, "b")]], pa.map_(pa.float64(), pa.string())), 2),
        ("array<struct<m:map<string,float>>>", pa.array([[{"m": {}}], [{"m": {"a": 1e300}}]], pa.list_(pa.struct({"m": MAP}))), 1),
        ("float", pa.array([1.0, None, float("inf"), 1e300]).dictionary_encode(), 3),
    ],
)  # fmt: skip
def test_a_number_too_large_is_refused_at_any_depth(narrow: str, column: "pa.Array[Any]", at: int) -> None:
    def fitted(*chunks: "pa.Array[Any]") -> list[Any]:
        return fitted_table(pa.table({"v": pa.chunked_array(chunks)}), arrow_schema(f"v {narrow}"), "test").to_pylist()

    assert fitted(column[:at], column[:1]) == [
        {"v": value} for value in (column[:at].to_pylist() + column[:1].to_pylist())
    ]
    for chunks in ([column], [column[at:]], [column[:at], column[at:]]):
        with pytest.raises(DataError, match=r"'v' is .* in the schema, and has a value that is out of its range"):
            fitted(*chunks)


WIDE = pa.schema([("v", pa.decimal256(40, 2)), ("n", pa.int64())])


def test_a_column_that_polars_has_no_type_for_passes_by_expressions_on_others() -> None:
    row = (Decimal("1.50"), 1)
    assert run(WithColumns(m="n + 1"), row, schema=WIDE).rows() == [(*row, 2)]
    assert run(FilterExpression("n = 1"), row, schema=WIDE).rows() == [row]


@pytest.mark.parametrize(
    "operator", [WithColumns(w=pl.col("v")), FilterExpression("v = 1"), MapBatches(lambda df: df, WIDE)]
)
def test_a_column_that_polars_has_no_type_for_is_named(operator: Operator) -> None:
    with pytest.raises(SchemaError, match=r"Polars cannot hold one of the columns v decimal256\(40, 2\)"):
        operator.output_schema([WIDE])


def test_times_and_durations_keep_the_unit_of_their_schema() -> None:
    schema = pa.schema([("t", pa.time32("s")), ("d", pa.duration("s"))])
    row = (time(1, 2, 3), timedelta(seconds=5))
    assert run(MapBatches(lambda df: df, schema), row, schema=schema).rows() == [row]


FULL = pa.field("item", pa.int64(), nullable=False)


@pytest.mark.parametrize(
    ("data_type", "good", "bad"),
    [
        (pa.struct([pa.field("x", pa.int64(), nullable=False)]), [{"x": 1}, None], {"x": None}),
        (pa.list_(FULL), [[1], None, []], [1, None]),
        (pa.map_(pa.string(), FULL), [[("a", 1)], None], [("a", None)]),
        (pa.list_(pa.struct([pa.field("l", pa.list_(FULL))])), [[{"l": [1]}, {"l": None}, None]], [{"l": [None]}]),
    ],
)
def test_nulls_inside_of_values_are_refused_where_none_may_be(data_type: pa.DataType, good: Any, bad: Any) -> None:
    schema = pa.schema([("v", data_type), ("n", pa.int64())])

    def fitted(*values: Any) -> list[Any]:
        given = pa.array([None, *values], all_nullable(data_type)).slice(1)
        fits = fitted_table(pa.table({"n": [0] * len(values), "v": given}), schema, "test")
        fits.validate(full=True)
        assert fits.schema == schema
        return fits.column("v").to_pylist()

    assert fitted(*good) == good
    with pytest.raises(DataError, match=r"column 'v' .* does not fit: its field .* is NOT NULL"):
        fitted(*good, bad)
    with pytest.raises(DataError, match=r"column 'v' is .* is NOT NULL"):
        batch_of([(bad, 1)], schema, "test")


def chained(first: Any, second: Any, schema: str) -> Collected:
    """Two map_batches one behind the other, as in a chain: the second gets the very batch that the first gave."""
    between = run(MapBatches(first, schema), ("a", 1), ("b", 2))
    after = Collected()
    MapBatches(second, schema).process(between.batches[0], 0, after)
    return after


def test_a_frame_that_was_kept_is_not_changed_by_the_next_function() -> None:
    kept = pl.DataFrame({"word": ["x", "y"], "n": [1, 2]})

    def changes_in_place(frame: pl.DataFrame) -> pl.DataFrame:
        frame.drop_in_place("n")
        return frame.with_columns(n=pl.lit(9, pl.Int64))

    assert chained(lambda _: kept, changes_in_place, "word string, n long").rows() == [("x", 9), ("y", 9)]
    assert kept.columns == ["word", "n"]


def test_the_next_function_sees_the_types_of_the_schema() -> None:
    seen = []

    def sees(frame: pl.DataFrame) -> pl.DataFrame:
        seen.append((frame.columns, frame.dtypes))
        return frame

    chained(lambda frame: frame.select(pl.col("n").cast(pl.Int8), "word"), sees, "word string, n long")
    chained(lambda frame: frame, sees, "word string, n long")
    assert seen == [(["word", "n"], [pl.String, pl.Int64])] * 2


def test_an_expression_behind_a_function_reads_what_it_gave() -> None:
    between = run(MapBatches(lambda frame: frame.with_columns(n=pl.col("n") * 10), "word string, n long"), ("a", 1))
    after = Collected()
    WithColumns(n=pl.col("n") + 1).process(between.batches[0], 0, after)
    assert after.rows() == [("a", 11)]


def test_a_frame_with_a_type_that_only_polars_has_is_refused_with_its_column() -> None:
    wide = MapBatches(lambda df: df.with_columns(pl.col("n").cast(pl.Int128)), WORDS)
    with pytest.raises(DataError, match=r"column 'n' is Int128, a type that only Polars has; give it another one"):
        run(wide, ("a", 1))
