"""How the driver's thread gets slow work done: elsewhere, with the result brought back to it."""

from collections.abc import Callable
from typing import Any, Protocol

from cutwater.errors import TakenOver


class DriverIO(Protocol):
    """Runs ``work`` elsewhere, one after the other, and then ``done`` on the attempt's thread with its result or error."""

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None: ...


class TakeoverWatch:
    """A DriverIO that tells ``taken_over`` first when the storage says so: whatever the work was for, it is the end."""

    def __init__(self, io: DriverIO, taken_over: Callable[[TakenOver], None]) -> None:
        self._io = io
        self._taken_over = taken_over

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def look(result: Any) -> None:
            if isinstance(result, TakenOver):
                self._taken_over(result)
            done(result)

        self._io.submit(work, look)
