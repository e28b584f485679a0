"""Timers of a keyed function: kept as state of their key, fired in the order of their times."""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any

import pyarrow as pa

from cutwater.flow.watermarks import MAX_WATERMARK, Milliseconds
from cutwater.operators.restored_timers import RestoredEntries, RestoredKeys, Timer
from cutwater.operators.soonest import KeysAhead
from cutwater.state.backend import KeyedStateStore
from cutwater.state.parted_dict import SLOTS, PartedDict
from cutwater.state.restored_columns import table_seen

_STORED = pa.list_(pa.int64())

MOST_IN_A_ROW = 1000
FEW = 16
"""So many timers of a key are searched for one as fast as a dict is asked."""


class TimerQueue:
    """Timers of one kind. The table holds each key's times and is what a snapshot sees; the heap is made from it.

    The table's name has a dot, so that no state of the user, which is named like an attribute, can have it.
    """

    def __init__(self, store: KeyedStateStore, kind: str, keys: pa.Schema) -> None:
        """After what is restored was given to ``store``."""
        self._store = store
        restored = RestoredKeys()

        def see(keys: list[Any], values: Any) -> None:
            restored.add(keys, values, values.flatten().to_numpy())

        self._table = table_seen(store, self.table_name(kind), keys, _STORED, see)
        self._followers: dict[tuple[Milliseconds, Any], int] = {}
        """While the last timers of all fire: how many in a row led to each one that was set meanwhile."""
        self._row = 0
        self._restored = RestoredEntries([restored.times], restored.keys)
        self._heap: list[Timer] = []
        """All others, and of those that were restored the first ones, if none of the others comes before them."""
        self._set = len(self._restored)
        self._places: dict[Any, dict[Milliseconds, int]] = {}
        """Of keys that have more than ``FEW``: where each timer stands among the times of its key."""
        self._latest = PartedDict()
        """Of a key the timer that was set last, while it waits: to set the same again, as many functions do for every record, reads
        nothing."""

    @staticmethod
    def table_name(kind: str) -> str:
        return f"timers.{kind}"

    def set(self, key: Any, time: Milliseconds) -> None:
        """A second timer of the key for the same time is the same timer."""
        latest = self._latest.of_slot[hash(key) % SLOTS]
        if latest.get(key) == time:
            return
        latest[key] = time
        times = self._table.get(key)
        if times is None:
            self._table.put(key, [time])
        elif self._is_set(key, times, time):
            return
        else:
            times = self._table.own(key, list)
            if len(times) > FEW:
                self._places[key][time] = len(times)
            times.append(time)
        heappush(self._heap, (time, self._next(), key))
        if self._row:
            self._followers[time, key] = self._row

    def earliest(self) -> Milliseconds | None:
        self._restored.fill(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: Milliseconds) -> Iterator[tuple[Milliseconds, Any]]:
        """Time and key of each timer up to ``now``, removed before it is given; also those set meanwhile."""
        ahead = KeysAhead(self._store, self._heap, now)
        while (time := self.earliest()) is not None and time <= now:
            yield self._removed_first(ahead)

    def last(self) -> Iterator[tuple[Milliseconds, Any]]:
        """All that are left, when no record comes any more; also those set meanwhile, but not for ever.

        A timer that sets the next one each time would never end: after ``MOST_IN_A_ROW`` it is dropped.
        """
        ahead = KeysAhead(self._store, self._heap, MAX_WATERMARK)
        while self.earliest() is not None:
            time, key = self._removed_first(ahead)
            self._row = self._followers.pop((time, key), 0) + 1
            if self._row <= MOST_IN_A_ROW:
                yield time, key
        self._row = 0

    def _removed_first(self, ahead: KeysAhead) -> tuple[Milliseconds, Any]:
        """Others follow: the state of their keys, the user's too, is read with that of the first."""
        ahead.before_next()
        time, _, key = heappop(self._heap)
        latest = self._latest.of_slot[hash(key) % SLOTS]
        if latest.get(key) == time:
            del latest[key]
        times = self._table.own(key, list)
        if len(times) > FEW:
            self._remove_from_many(key, times, time)
        else:
            times.remove(time)
        if not times:
            self._table.delete(key)
        return time, key

    def _remove_from_many(self, key: Any, times: list[Milliseconds], time: Milliseconds) -> None:
        places = self._places_of(key, times)
        place, last = places.pop(time), times.pop()
        if last != time:
            times[place] = last
            places[last] = place
        if len(times) <= FEW:
            del self._places[key]

    def _is_set(self, key: Any, times: list[Milliseconds], time: Milliseconds) -> bool:
        return time in (times if len(times) <= FEW else self._places_of(key, times))

    def _places_of(self, key: Any, times: list[Milliseconds]) -> dict[Milliseconds, int]:
        """Made when it is asked for: what was restored has none yet."""
        places = self._places.get(key)
        if places is None:
            places = self._places[key] = {time: place for place, time in enumerate(times)}
        return places

    def _next(self) -> int:
        self._set += 1
        return self._set
