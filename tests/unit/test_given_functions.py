"""What is known of a function before it is called."""

import inspect
from typing import Any

import pytest

import cutwater as cw
from cutwater.functions import checked_instance
from cutwater.given_functions import checked_function


def test_a_wrapper_that_shows_the_parameters_of_what_it_wraps_is_taken_as_it_is() -> None:
    def wrapped(row: Any, connection: Any) -> Any: ...

    def wrapper(row: Any) -> Any:
        return wrapped(row, None)

    wrapper.__signature__ = inspect.signature(wrapped)  # type: ignore[attr-defined]
    assert checked_function("map", wrapper, "row") is wrapper


class Lenient(cw.KeyedProcess):
    """Methods may take more than they are called with, by any name."""

    def open(self, *_: Any) -> None: ...

    def process(self, record: Any, context: Any, verbose: bool = False) -> Any: ...

    @staticmethod
    def on_timer(*args: Any, **named: Any) -> Any: ...


def test_methods_that_can_be_called_as_they_are_are_taken_however_they_are_written() -> None:
    assert isinstance(checked_instance("process", Lenient, cw.KeyedProcess), Lenient)


class Uncalled(cw.KeyedProcess):
    seen = cw.ValueState

    def process(self, row: Any, ctx: Any) -> Any: ...


class Opened(cw.KeyedProcess):
    open = cw.ValueState("long")  # type: ignore[assignment]

    def process(self, row: Any, ctx: Any) -> Any: ...


class Sided(cw.KeyedProcess):
    on_timer = cw.SideOutput("late", "user string")  # type: ignore[assignment]

    def process(self, row: Any, ctx: Any) -> Any: ...


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (
            Uncalled,
            r"process: Uncalled\.seen is the class cw\.ValueState itself, .* write seen = cw\.ValueState\(\.\.\.\)",
        ),
        (Opened, r"process: Opened\.open stands where a cw\.KeyedProcess has its open\(\); choose another name"),
        (Sided, r"process: Sided\.on_timer stands where a cw\.KeyedProcess has its on_timer\(\)"),
    ],
)
def test_a_declaration_that_would_be_none_is_told_where_the_function_is_given(function: Any, told: str) -> None:
    with pytest.raises(cw.ConfigError, match=told):
        checked_instance("process", function, cw.KeyedProcess)


def test_a_kind_of_state_of_the_users_own_may_be_written_in_the_body_of_a_function() -> None:
    class Nested(cw.KeyedProcess):
        class Flag(cw.ValueState):
            """A boolean."""

        seen = Flag("boolean")

        def process(self, row: Any, ctx: Any) -> Any: ...

    assert isinstance(checked_instance("process", Nested, cw.KeyedProcess), Nested)
