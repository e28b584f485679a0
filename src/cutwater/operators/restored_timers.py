"""What waits for its time as it was restored: in columns until that comes near."""

from collections.abc import Sequence
from heapq import heappush
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from cutwater.flow.watermarks import Milliseconds

RESTORED_AT_ONCE = 1024

Timer = tuple[Milliseconds, int, Any]
"""Time, number and key. The number breaks ties by the order of setting: keys need not be comparable."""

Column = npt.NDArray[np.int64]


class RestoredEntries:
    """Given out in their order: what ``columns`` hold of each, its number and its key. To make an entry of a heap for each of
    millions would take longer than to read them."""

    def __init__(self, columns: Sequence[Column], keys: Sequence[Any]) -> None:
        """``columns``: by the first one, then by the next. Of those that are alike in all, the first stays first."""
        self._order = np.lexsort(columns[::-1])
        self._count = len(self._order)
        self._columns = [column[self._order] for column in columns]
        self._keys = keys
        self._given = 0
        self._first = self._next()
        """All of the next one but its key; None: there is none."""

    def __len__(self) -> int:
        """With those that were given."""
        return self._count

    def fill(self, heap: list[Any]) -> None:
        """Before somebody looks for the first one of the heap: the next ones go there, if none that is in it comes before them."""
        if self._first is not None and (not heap or self._first < heap[0]):
            part = slice(self._given, self._given + RESTORED_AT_ONCE)
            self._given = min(part.stop, len(self))
            self._first = self._next()
            columns = [column[part].tolist() for column in self._columns]
            keys = map(self._keys.__getitem__, self._order[part].tolist())
            for entry in zip(*columns, range(part.start, self._given), keys, strict=True):
                heappush(heap, entry)
            if self._first is None:
                self._order, self._columns, self._keys = self._order[:0].copy(), [], ()

    def _next(self) -> tuple[int, ...] | None:
        given = self._given
        return None if given == len(self) else (*(int(column[given]) for column in self._columns), given)


class RestoredKeys:
    """Times that come in columns, and beside each its key: one for each element of a list."""

    def __init__(self) -> None:
        self._times: list[Column] = [np.empty(0, np.int64)]
        self.keys: list[Any] = []

    @property
    def times(self) -> Column:
        return np.concatenate(self._times)

    def add(self, keys: list[Any], lists: Any, times: Column) -> list[Any]:
        """``times``: one for each element of the ``lists``. Gives the key of each."""
        # Most keys have one, and none has none.
        is_one_each = len(times) == len(keys)
        of_times = (
            keys if is_one_each else list(chain.from_iterable(map(repeat, keys, lists.value_lengths().to_pylist())))
        )
        # A copy: else all that was read with them would stay until the last ones are.
        self._times.append(times.copy())
        self.keys.extend(of_times)
        return of_times
