"""When Python's garbage collector comes: the loop stands still for as long as it takes, which grows with what it goes through.

Python counts how many more objects there are. Values that take the places of others do not count, and a million of them, made young
one after the other, are gone through at once as soon as something else does: half a second. So the loop calls for it itself, after
so many records. What is older is gone through only as long as that is soon done; where state is many objects, it never is.
"""

import gc
import time
from collections.abc import Callable
from typing import Protocol

YOUNG_RECORDS = 16_384
"""Of each the last value may be an object that is new."""
OLD_EVERY = 6
"""So many times that of young objects: what may have come since is soon gone through, too."""
AFFORDABLE_SECONDS = 0.010
DEAR = 3
"""Not so many times that, but longer, it may take once: much was let go of, or the machine was busy with others."""
_YOUNG_OBJECTS, _NEVER = 50_000, 1 << 30


class Garbage(Protocol):
    def begin(self) -> None:
        """Called once, by the loop: what is there was opened or restored, and stays."""

    def processed(self, records: int) -> float:
        """Called by the loop behind each slice. How many seconds of the processor's time it took."""

    def end(self) -> None:
        """Called when the subtask is closed, whether or not it began: its process may go on with another one, or with Python code
        of the user's that has no such loop."""


class PythonsOwn:
    """Implements ``Garbage`` where the loop is not alone in its process: Python chooses."""

    def begin(self) -> None:
        pass

    def processed(self, records: int) -> float:
        return 0.0

    def end(self) -> None:
        pass


class CalledByTheLoop:
    """Implements ``Garbage``, for all of its process."""

    def __init__(
        self, collect: Callable[[int], object] = gc.collect, seconds: Callable[[], float] = time.thread_time
    ) -> None:
        self._collect = collect
        self._seconds = seconds
        self._records = 0
        self._collections = 0
        self._is_old_affordable = True
        self._took_long = False
        """The last time when all were gone through."""
        self._thresholds: tuple[int, int, int] | None = None
        """Of Python, before."""

    def begin(self) -> None:
        self._thresholds = gc.get_threshold()
        gc.freeze()
        # Young ones also when a record makes very many.
        gc.set_threshold(_YOUNG_OBJECTS, _NEVER, _NEVER)

    def processed(self, records: int) -> float:
        self._records += records
        if self._records < YOUNG_RECORDS:
            return 0.0
        self._records = 0
        self._collections += 1
        looks_at_all = self._is_old_affordable and self._collections % OLD_EVERY == 0
        began = self._seconds()
        self._collect(2 if looks_at_all else 0)
        took = self._seconds() - began
        if looks_at_all:
            most = AFFORDABLE_SECONDS * (1 if self._took_long else DEAR)
            self._is_old_affordable, self._took_long = took < most, took >= AFFORDABLE_SECONDS
        return took

    def end(self) -> None:
        if self._thresholds is not None:
            gc.set_threshold(*self._thresholds)
            gc.unfreeze()  # else all that the subtask held, which refers to itself, would never be let go of
            self._thresholds = None
