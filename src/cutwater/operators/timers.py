"""Timers of a keyed function: kept as state of their key, fired in the order of their times."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any

import pyarrow as pa

from cutwater.flow.watermarks import MAX_WATERMARK, Milliseconds
from cutwater.operators.soonest import KeysAhead
from cutwater.state.backend import KeyedStateStore

_STORED = pa.list_(pa.int64())

MOST_IN_A_ROW = 1000


class TimerQueue:
    """Timers of one kind. The table holds each key's times and is what a snapshot sees; the heap is made from it.

    The table's name has a dot, so that no state of the user, which is named like an attribute, can have it.
    """

    def __init__(self, store: KeyedStateStore, kind: str, keys: pa.Schema) -> None:
        """After what is restored was given to ``store``."""
        self._store = store
        self._table = store.rows(self.table_name(kind), keys, _STORED)
        self._set = 0
        self._followers: dict[tuple[Milliseconds, Any], int] = {}
        """While the last timers of all fire: how many in a row led to each one that was set meanwhile."""
        self._row = 0
        self._heap: list[tuple[Milliseconds, int, Any]] = []
        self._places: dict[tuple[Milliseconds, Any], int] = {}
        """Where each timer stands among the times of its key: many of one key are not searched for one."""
        for key, times in self._table.items():
            self._heap.extend((time, self._next(), key) for time in times)
            self._places.update(((time, key), place) for place, time in enumerate(times))
        heapify(self._heap)

    @staticmethod
    def table_name(kind: str) -> str:
        return f"timers.{kind}"

    def set(self, key: Any, time: Milliseconds) -> None:
        """A second timer of the key for the same time is the same timer."""
        if (time, key) in self._places:
            return
        times = self._table.own(key, list)
        if times is None:
            times = []
            self._table.put(key, times)
        self._places[time, key] = len(times)
        times.append(time)
        heappush(self._heap, (time, self._next(), key))
        if self._row:
            self._followers[time, key] = self._row

    def earliest(self) -> Milliseconds | None:
        return self._heap[0][0] if self._heap else None

    def due(self, now: Milliseconds) -> Iterator[tuple[Milliseconds, Any]]:
        """Time and key of each timer up to ``now``, removed before it is given; also those set meanwhile."""
        ahead = KeysAhead(self._store, self._heap, now)
        while self._heap and self._heap[0][0] <= now:
            yield self._removed_first(ahead)

    def last(self) -> Iterator[tuple[Milliseconds, Any]]:
        """All that are left, when no record comes any more; also those set meanwhile, but not for ever.

        A timer that sets the next one each time would never end: after ``MOST_IN_A_ROW`` it is dropped.
        """
        ahead = KeysAhead(self._store, self._heap, MAX_WATERMARK)
        while self._heap:
            time, key = self._removed_first(ahead)
            self._row = self._followers.pop((time, key), 0) + 1
            if self._row <= MOST_IN_A_ROW:
                yield time, key
        self._row = 0

    def _removed_first(self, ahead: KeysAhead) -> tuple[Milliseconds, Any]:
        """Others follow: the state of their keys, the user's too, is read with that of the first."""
        ahead.before_next()
        time, _, key = heappop(self._heap)
        place = self._places.pop((time, key))
        times = self._table.own(key, list)
        last = times.pop()
        if last != time:
            times[place] = last
            self._places[last, key] = place
        elif not times:
            self._table.delete(key)
        return time, key

    def _next(self) -> int:
        """Breaks ties by the order of setting: keys need not be comparable."""
        self._set += 1
        return self._set
