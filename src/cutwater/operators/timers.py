"""Timers of a keyed function: kept as state of their key, fired in the order of their times."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any

import pyarrow as pa

from cutwater.flow.elements import Milliseconds
from cutwater.state.backend import KeyedStateStore

_STORED = pa.list_(pa.int64())


class TimerQueue:
    """Timers of one kind. The table holds each key's times and is what a snapshot sees; the heap is made from it.

    The table's name has a dot, so that no state of the user, which is named like an attribute, can have it.
    """

    def __init__(self, store: KeyedStateStore, kind: str, keys: pa.Schema) -> None:
        """After what is restored was given to ``store``."""
        self._table = store.rows(self.table_name(kind), keys, _STORED)
        self._set = 0
        self._heap: list[tuple[Milliseconds, int, Any]] = []
        for key, times in self._table.items():
            self._heap.extend((time, self._next(), key) for time in times)
        heapify(self._heap)

    @staticmethod
    def table_name(kind: str) -> str:
        return f"timers.{kind}"

    def set(self, key: Any, time: Milliseconds) -> None:
        """A second timer of the key for the same time is the same timer."""
        times = self._table.get(key) or ()
        if time not in times:
            self._table.put(key, (*times, time))
            heappush(self._heap, (time, self._next(), key))

    def earliest(self) -> Milliseconds | None:
        return self._heap[0][0] if self._heap else None

    def due(self, now: Milliseconds) -> Iterator[tuple[Milliseconds, Any]]:
        """Time and key of each timer up to ``now``, removed before it is given; also those set meanwhile."""
        while self._heap and self._heap[0][0] <= now:
            time, _, key = heappop(self._heap)
            rest = tuple(other for other in self._table.get(key) or () if other != time)
            if rest:
                self._table.put(key, rest)
            else:
                self._table.delete(key)
            yield time, key

    def _next(self) -> int:
        """Breaks ties by the order of setting: keys need not be comparable."""
        self._set += 1
        return self._set
