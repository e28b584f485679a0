"""What is known of a function before it is called."""

import inspect
from typing import Any

from cutwater.given_functions import checked_function


def test_a_wrapper_that_shows_the_parameters_of_what_it_wraps_is_taken_as_it_is() -> None:
    def wrapped(row: Any, connection: Any) -> Any: ...

    def wrapper(row: Any) -> Any:
        return wrapped(row, None)

    wrapper.__signature__ = inspect.signature(wrapped)  # type: ignore[attr-defined]
    assert checked_function("map", wrapper, "row") is wrapper
