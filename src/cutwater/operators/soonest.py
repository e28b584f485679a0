"""What a heap would give next, while all of it stays where it is: state is read for it at once."""

from collections.abc import Container, Sequence
from heapq import heappop, heappush
from typing import Any

from cutwater.flow.watermarks import Milliseconds
from cutwater.state.backend import KeyedStateStore

KEYS_AHEAD = 128
"""So many are read at once: few enough that little is read in vain when a step ends sooner."""


class KeysAhead:
    """Lets the state of the keys that ``heap`` gives next, up to ``until``, be read at once. That of those ``held`` was read."""

    def __init__(
        self,
        store: KeyedStateStore,
        heap: Sequence[tuple[Any, ...]],
        until: Milliseconds,
        held: Container[Any] = (),
    ) -> None:
        self._store = store
        self._heap = heap
        self._until = until
        self._held = held
        self._read = 0
        """For how many of the next ones that was done."""

    def before_next(self) -> None:
        """Each time before one is taken from the heap."""
        if not self._read:
            self._store.expect([key for key in soonest_keys(self._heap, self._until) if key not in self._held])
            self._read = KEYS_AHEAD
        self._read -= 1


def soonest_keys(heap: Sequence[tuple[Any, ...]], until: Milliseconds, most: int = KEYS_AHEAD) -> list[Any]:
    """Of the first ``most`` entries (time, what tells it from all others, key) up to ``until`` the keys, in order."""
    keys: list[Any] = []
    next_ones = [(heap[0], 0)] if heap and heap[0][0] <= until else []
    while next_ones and len(keys) < most:
        entry, at = heappop(next_ones)
        keys.append(entry[-1])
        for below in range(2 * at + 1, min(2 * at + 3, len(heap))):
            if heap[below][0] <= until:
                heappush(next_ones, (heap[below], below))
    return keys
