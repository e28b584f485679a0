"""What becomes due all at once, in steps: a cut can come between two of them."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from math import inf
from typing import TypeVar

T = TypeVar("T")


class Steps:
    """A step ends when it has taken ``seconds``, if a function of the user is slow, and has its most items if none is.

    ``monotonic`` is that of the subtask's clock; without one no time passes.
    """

    def __init__(self, monotonic: Callable[[], float] = float, seconds: float = inf) -> None:
        self._monotonic = monotonic
        self._seconds = seconds

    def of(self, items: Iterable[T], most: int) -> Iterator[Iterator[T]]:
        """Each step has one item at least, and is used up before the next one is asked for. An item is taken from ``items`` only
        when it is to be worked on: those that are left when a step ends are as if nobody had looked at them."""
        left = iter(items)
        for first in left:
            yield chain((first,), self._others(left, most - 1, self._monotonic() + self._seconds))

    def _others(self, left: Iterator[T], most: int, until: float) -> Iterator[T]:
        for _ in range(most):
            if self._monotonic() >= until:
                return
            try:
                yield next(left)
            except StopIteration:
                return

    def together(self, most: int) -> "Together":
        return Together(self._monotonic, self._seconds, most)


class Together:
    """How many small items are done in one step, where each by itself is not worth one: twice as many behind each step that was
    short, so that nobody waits for long where a function of the user, behind them in the chain too, is slow."""

    def __init__(self, monotonic: Callable[[], float], seconds: float, most: int) -> None:
        self._monotonic = monotonic
        self._seconds = seconds
        self._most = most
        self._began = 0.0
        self.number = 1

    def begin(self) -> None:
        """A step."""
        self._began = self._monotonic()

    def end(self, items: int) -> None:
        """So many were done in it."""
        took = self._monotonic() - self._began
        fitting = self._most if took <= 0 or self._seconds == inf else int(items * self._seconds / took)
        self.number = max(1, min(fitting, 2 * self.number, self._most))
