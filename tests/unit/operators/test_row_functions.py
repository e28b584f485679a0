"""Map, flat map and filter with row functions."""

import json
import pickle
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from cutwater.errors import DataError, SchemaError, UserCodeError
from cutwater.operators.operator import Operator
from cutwater.operators.row_functions import Filter, FlatMap, Map
from cutwater.rows import Row, batch_of
from cutwater.schema import arrow_schema
from tests.unit.operators.collecting import Collected

WORDS = arrow_schema("word string, n long")


def run(operator: Operator, *rows: tuple[Any, ...], schema: pa.Schema = WORDS) -> Collected:
    out = Collected()
    operator.process(batch_of(list(rows), schema, "test"), 0, out)
    return out


def test_map_gives_one_row_for_each_and_keeps_the_order() -> None:
    doubled = Map(lambda r: (r.word.upper(), r.n * 2), "w string, twice long")
    out = run(doubled, ("a", 1), ("b", 2))
    assert out.rows() == [("A", 2), ("B", 4)]
    assert out.batches[0].schema == doubled.output_schema([WORDS]) == arrow_schema("w string, twice long")


def test_map_may_return_the_row_a_dict_or_a_bare_value() -> None:
    assert run(Map(lambda r: r, WORDS), ("a", 1)).rows() == [("a", 1)]
    assert run(Map(lambda r: {"n": r["n"], "word": r[0]}, WORDS), ("a", 1)).rows() == [("a", 1)]
    assert run(Map(lambda r: r.n, "n long"), ("a", 1)).rows() == [(1,)]


def test_flat_map_takes_lists_generators_and_none() -> None:
    def some(row: Row) -> Any:
        match row.n:
            case 0:
                return None
            case 1:
                return [("one", 1)]
            case _:
                return ((row.word, i) for i in range(row.n))

    assert run(FlatMap(some, WORDS), ("a", 0), ("b", 1), ("c", 2)).rows() == [("one", 1), ("c", 0), ("c", 1)]


def test_nothing_is_emitted_when_nothing_came_out() -> None:
    assert run(FlatMap(lambda r: [], WORDS), ("a", 1)).batches == []
    assert run(Filter(lambda r: False), ("a", 1)).batches == []
    assert run(Map(lambda r: r, WORDS)).batches == []


def test_filter_keeps_the_rows_for_which_something_true_is_returned() -> None:
    assert run(Filter(lambda r: r.n % 2), ("a", 1), ("b", 2), ("c", 3)).rows() == [("a", 1), ("c", 3)]
    assert run(Filter(lambda r: None if r.n == 1 else "yes"), ("a", 1), ("b", 2)).rows() == [("b", 2)]


def test_filter_passes_a_whole_batch_on_without_a_copy() -> None:
    out = Collected()
    batch = batch_of([("a", 1)], WORDS, "test")
    Filter(lambda r: True).process(batch, 0, out)
    assert out.batches[0] is batch


def fails_at_three(row: Row) -> Any:
    if row.n == 3:
        raise ValueError("three is wrong")  # the line that the error has to name
    return [(row.word, row.n)]


LINES = Path(__file__).read_text(encoding="utf-8").splitlines()
LINE = f"test_row_functions.py:{next(i for i, line in enumerate(LINES, 1) if 'the line that the error has' in line)}"


@pytest.mark.parametrize(
    "operator", [Map(fails_at_three, WORDS), FlatMap(fails_at_three, WORDS), Filter(fails_at_three)]
)
def test_an_exception_of_the_function_names_line_and_row(operator: Operator) -> None:
    if isinstance(operator, Map) and not isinstance(operator, FlatMap):
        operator.fn = lambda row: fails_at_three(row)[0]
    with pytest.raises(UserCodeError) as raised:
        run(operator, ("a", 1), ("c", 3), ("d", 4))
    assert raised.value.user_line == LINE
    assert f"ValueError: three is wrong at {LINE}, for the row Row(word='c', n=3)" in str(raised.value)
    assert isinstance(raised.value.__cause__, ValueError)


def without_three(row: Row) -> Any:
    return [next((row.word, n) for n in [row.n] if n != 3)]  # nothing is left for three


@pytest.mark.parametrize(
    "operator",
    [Map(lambda row: without_three(row)[0], WORDS), FlatMap(without_three, WORDS), Filter(without_three)],
)
def test_a_stop_iteration_of_the_function_is_a_failure_and_drops_no_rows(operator: Operator) -> None:
    at = next(i for i, line in enumerate(LINES, 1) if "nothing is left for three" in line)
    with pytest.raises(UserCodeError) as raised:
        run(operator, ("a", 1), ("c", 3), ("d", 4))
    assert f"StopIteration at test_row_functions.py:{at}, for the row Row(word='c', n=3)" in str(raised.value)


@pytest.mark.parametrize("one", [{"word": "x"}, "xy", b"xy", bytearray(b"xy")])
def test_a_single_result_of_flat_map_is_not_torn_apart(one: Any) -> None:
    with pytest.raises(UserCodeError, match=r"flat_map: TypeError: flat_map returned .*a single .*return a list"):
        run(FlatMap(lambda r: one, "word string"), ("a", 1))
    with pytest.raises(UserCodeError, match=r"flat_map returned Row\(word='a', n=1\), a single Row"):
        run(FlatMap(lambda r: r, "word string"), ("a", 1))
    with pytest.raises(
        UserCodeError, match=r"flat_map returned \('a', None\), a single tuple: yield it, or return a list"
    ):
        run(FlatMap(lambda r: (r.word, None), WORDS), ("a", 1))


def test_what_is_no_list_of_results_is_told_with_what_to_write() -> None:
    with pytest.raises(
        UserCodeError, match=r"flat_map returned 5, which is no list of results: yield each, or return a"
    ):
        run(FlatMap(lambda r: 5, "n long"), ("a", 1))  # type: ignore[arg-type,return-value]


def test_a_tuple_of_bare_values_is_several_results_of_one_column() -> None:
    assert run(FlatMap(lambda r: (r.word, None), "word string"), ("a", 1)).rows() == [("a",), (None,)]


def test_flat_map_takes_any_iterable_of_results() -> None:
    several = FlatMap(lambda r: ((r.word, n) for n in range(r.n)) if r.n < 2 else ((r.word, 7), (r.word, 8)), WORDS)
    assert run(several, ("a", 1), ("b", 2)).rows() == [("a", 0), ("b", 7), ("b", 8)]
    assert run(FlatMap(lambda r: map(str, range(r.n)), "w string"), ("a", 2)).rows() == [("0",), ("1",)]


def test_a_generator_that_fails_midway_names_its_row() -> None:
    def yields(row: Row) -> Any:
        yield row
        yield from fails_at_three(row)

    with pytest.raises(UserCodeError, match=r"for the row Row\(word='c', n=3\)"):
        run(FlatMap(yields, WORDS), ("a", 1), ("c", 3))


def test_an_exception_inside_a_library_names_the_users_line() -> None:
    with pytest.raises(UserCodeError) as raised:
        run(Map(lambda r: json.loads(r.word), "n long"), ("{", 1))
    assert str(raised.value.user_line).startswith("test_row_functions.py:")


def test_a_user_code_error_survives_pickling_with_its_line() -> None:
    error = pickle.loads(pickle.dumps(UserCodeError("bad", "job.py:12")))  # noqa: S301 (our own bytes)
    assert (str(error), error.user_line) == ("bad", "job.py:12")


def test_a_result_that_does_not_fit_is_a_data_error_that_names_the_operator() -> None:
    with pytest.raises(DataError, match="map: column 'n' is int64, which cannot hold 'x'"):
        run(Map(lambda r: (r.word, "x"), WORDS), ("a", 1))


def test_a_wrong_schema_is_refused_when_the_pipeline_is_written() -> None:
    with pytest.raises(SchemaError, match="flat_map's schema: at character 6"):
        FlatMap(lambda r: r, "word strin")


def test_operators_travel_to_the_workers() -> None:
    again = pickle.loads(cloudpickle.dumps(Map(lambda r: (r.word, r.n + 1), WORDS)))  # noqa: S301 (our own bytes)
    assert run(again, ("a", 1)).rows() == [("a", 2)]
