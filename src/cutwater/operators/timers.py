"""Timers of a keyed function: kept as state of their key, fired in the order of their times."""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.watermarks import MAX_WATERMARK, Milliseconds
from cutwater.operators.soonest import KeysAhead
from cutwater.state.backend import KeyedStateStore
from cutwater.state.parted_dict import SLOTS, PartedDict
from cutwater.state.tables import RestoresColumns, RowTable

_STORED = pa.list_(pa.int64())

MOST_IN_A_ROW = 1000
FEW = 16
"""So many timers of a key are searched for one as fast as a dict is asked."""
RESTORED_ROWS = 8192


class TimerQueue:
    """Timers of one kind. The table holds each key's times and is what a snapshot sees; the heap is made from it.

    The table's name has a dot, so that no state of the user, which is named like an attribute, can have it.
    """

    def __init__(self, store: KeyedStateStore, kind: str, keys: pa.Schema) -> None:
        """After what is restored was given to ``store``."""
        self._store = store
        self._table = store.rows(self.table_name(kind), keys, _STORED)
        self._followers: dict[tuple[Milliseconds, Any], int] = {}
        """While the last timers of all fire: how many in a row led to each one that was set meanwhile."""
        self._row = 0
        times, key_of = _restored(self._table)
        order = np.argsort(times, kind="stable")
        in_order = zip(times[order].tolist(), range(len(order)), map(key_of.__getitem__, order.tolist()), strict=True)
        self._heap: list[tuple[Milliseconds, int, Any]] = list(in_order)
        """What is in order is a heap."""
        self._set = len(order)
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
        """Breaks ties by the order of setting: keys need not be comparable."""
        self._set += 1
        return self._set


def _restored(table: RowTable) -> tuple[npt.NDArray[np.int64], list[Any]]:
    """The times, and beside each of them its key."""
    if not isinstance(table, RestoresColumns):
        rows = list(table.items())
        times = np.fromiter(chain.from_iterable(of_key for _, of_key in rows), np.int64)
        return times, [key for key, of_key in rows for _ in of_key]
    parts: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    keys: list[Any] = []
    values: Any
    for of_rows, values in table.restored(RESTORED_ROWS):
        times = values.flatten().to_numpy()
        parts.append(times)
        # Most keys have one, and none has none.
        sizes = [] if len(times) == len(of_rows) else values.value_lengths().to_pylist()
        keys.extend(chain.from_iterable(map(repeat, of_rows, sizes)) if sizes else of_rows)
    return np.concatenate(parts), keys
