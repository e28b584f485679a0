"""How the driver's thread gets slow work done: elsewhere, with the result brought back to it."""

from collections.abc import Callable
from typing import Any, Protocol


class DriverIO(Protocol):
    """Runs ``work`` elsewhere, one after the other, and then ``done`` on the attempt's thread with its result or error."""

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None: ...
