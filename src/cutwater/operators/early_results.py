"""Windows that are told before they are over: which, for which keys, and when by the clock.

What changed since the last time is not in snapshots: behind a restore every open window is told once, for all its keys.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, Generic, Protocol, TypeVar

from cutwater.flow.watermarks import Milliseconds
from cutwater.state.parted_dict import Layer, parted_if_large


class Changes(Protocol):
    def add(self, keys: Any) -> None: ...


class ChangedValues:
    """Keys as Python values, in the order in which they changed: that in which whatever is kept of them was made, so that it is
    near in memory."""

    __slots__ = ("_known", "_order")

    def __init__(self) -> None:
        self._known: Layer = {}
        self._order: list[Any] = []

    def add(self, keys: Iterable[Any]) -> None:
        new = [key for key in dict.fromkeys(keys) if key not in self._known]
        self._known.update(zip(new, repeat(None)))
        self._known = parted_if_large(self._known)
        self._order += new

    def __iter__(self) -> Iterator[Any]:
        return iter(self._order)


C = TypeVar("C", bound=Changes)


class EarlyResults(Generic[C]):
    """``every`` None: nothing is told early."""

    def __init__(self, every: Milliseconds | None, nothing: Callable[[], C]) -> None:
        self._every = every
        self._nothing = nothing
        self._changed: dict[Milliseconds, C | None] = {}
        self.due: Milliseconds | None = None
        """When the next ones are to be told."""

    def note(self, end: Milliseconds, keys: Any, now: Milliseconds) -> None:
        """``keys`` of the window that ends there have changed."""
        if self._every is None:
            return
        if end not in self._changed:
            self._changed[end] = self._nothing()
        if (changes := self._changed[end]) is not None:
            changes.add(keys)
        self._schedule(now)

    def note_all(self, ends: Iterable[Milliseconds], now: Milliseconds) -> None:
        """All keys of those windows, because nobody knows which of them changed."""
        if self._every is not None and (found := dict.fromkeys(ends)):
            self._changed.update(found)
            self._schedule(now)

    def _schedule(self, now: Milliseconds) -> None:
        if self.due is None:
            assert self._every is not None
            self.due = (now // self._every + 1) * self._every

    def take(self, now: Milliseconds) -> list[tuple[Milliseconds, C | None]]:
        """What is to be told by now, in the order of the windows' ends; None: all keys."""
        if self.due is None or now < self.due:
            return []
        self.due, changed, self._changed = None, self._changed, {}
        return sorted(changed.items(), key=lambda each: each[0])
