"""Which line is blamed for a failure: one that the user can open and change."""

import json
from collections.abc import Callable

import pyarrow as pa

from cutwater.operators.user_code import own_line, user_error, user_line
from cutwater.rows import shortened


def raised_by(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("it does not fail")


def test_inside_a_compiled_library_the_line_is_the_one_that_called_it() -> None:
    error = raised_by(lambda: pa.array(["a"]).cast(pa.int64()))
    assert str(own_line(error)).startswith("test_user_code.py:")
    assert str(user_line(error.__traceback__)).startswith("test_user_code.py:")


def test_a_failure_that_only_compiled_code_was_in_has_no_line_of_the_user() -> None:
    error = raised_by(lambda: pa.array(["a"]).cast(pa.int64()))
    below = error.__traceback__
    while below is not None and not below.tb_frame.f_code.co_filename.endswith(".pxi"):
        below = below.tb_next
    assert below is not None, "pyarrow names its Cython files in tracebacks"
    assert own_line(error.with_traceback(below)) is None


def test_a_function_of_a_library_that_the_user_passed_is_named_by_its_own_line() -> None:
    error = raised_by(lambda: json.loads("{"))
    assert error.__traceback__ is not None
    inside = error.__traceback__.tb_next
    assert inside is not None
    assert str(user_line(inside.tb_next)).startswith("decoder.py:")


def test_the_first_line_of_a_failure_has_all_that_is_looked_for_however_many_lines_the_error_has() -> None:
    error = raised_by(lambda: exec("raise ValueError('two\\nlines')"))
    first, second = str(user_error(error, "map 'm'", ("a\nb",))).splitlines()
    assert first.startswith("map 'm': ValueError: two at ")
    assert first.endswith(r"for the row ('a\nb',)")
    assert second == "lines"


def test_a_value_that_shows_itself_in_many_lines_is_told_in_one() -> None:
    class Drawn:
        def __repr__(self) -> str:
            return "+--+\n|  |\n+--+"

    assert shortened(Drawn()) == "+--+ |  | +--+"
