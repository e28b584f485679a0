"""How long the head of a chain goes on with a batch, where it need not look at all rows together."""

from collections.abc import Callable, Iterator
from itertools import chain, islice
from math import inf
from typing import TypeVar

T = TypeVar("T")

ROWS_AT_ONCE = 16
"""Between them nobody looks at the clock, which costs something."""


class Turn:
    """Ends between two rows when it has taken ``seconds``: a function of the user may have become slow at any of them, and a cut
    waits for it. What is left of the batch the loop brings again.

    ``monotonic`` is that of the subtask's clock; without one no time passes.
    """

    def __init__(self, monotonic: Callable[[], float] = float, seconds: float = inf) -> None:
        self._monotonic = monotonic
        self._seconds = seconds
        self._left = 0
        self._until = inf

    def of(self, rows: Iterator[T], count: int) -> Iterator[T]:
        """Those of a batch that has so many. Its turn begins with this call, not with the first row: what they need of state
        may be read in between."""
        if self._seconds == inf:
            return rows
        return chain.from_iterable(self._parts(rows, count, self._monotonic() + self._seconds))

    def _parts(self, rows: Iterator[T], count: int, until: float) -> Iterator[Iterator[T]]:
        for done in range(0, count, ROWS_AT_ONCE):
            if done and self._monotonic() >= until:
                self._left = count - done
                return
            yield islice(rows, ROWS_AT_ONCE)

    def begin(self) -> None:
        """With a batch of which several rows are looked at together."""
        self._until = self._monotonic() + self._seconds

    def leave(self, rows: int, *, enough: bool) -> bool:
        """Whether so many rows of the batch are to be left: it took its time, or made ``enough`` of the others."""
        if self._seconds == inf or not (enough or self._monotonic() >= self._until):
            return False
        self._left = rows
        return True

    def end(self) -> int:
        """How many rows of the batch were not looked at."""
        left, self._left = self._left, 0
        return left
