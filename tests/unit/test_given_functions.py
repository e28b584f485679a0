"""What is known of a function before it is called."""

import inspect
from typing import Any

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
