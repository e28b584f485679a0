"""Timers as they were restored: in columns until their time comes near."""

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from cutwater.flow.watermarks import Milliseconds
from cutwater.state.tables import RestoresColumns, RowTable
from cutwater.state.uncollected import uncollected

RESTORED_ROWS = 8192

Timer = tuple[Milliseconds, int, Any]
"""Time, number and key. The number breaks ties by the order of setting: keys need not be comparable."""


class RestoredTimers:
    """Given out in their order. To make an entry of a heap for each of millions would take longer than to read them."""

    def __init__(self, table: RowTable) -> None:
        with uncollected():
            times, self._keys = _read(table)
        self._order = np.argsort(times, kind="stable")
        self._times = times[self._order]
        self._given = 0
        self.first = self._first()
        """Time and number of the next one; None: there is none."""

    def __len__(self) -> int:
        """With those that were given."""
        return len(self._times)

    def next(self, most: int) -> Iterator[Timer]:
        part = slice(self._given, self._given + most)
        self._given = min(part.stop, len(self))
        self.first = self._first()
        keys = map(self._keys.__getitem__, self._order[part].tolist())
        return zip(self._times[part].tolist(), range(part.start, self._given), keys, strict=True)

    def _first(self) -> tuple[Milliseconds, int] | None:
        return None if self._given == len(self) else (int(self._times[self._given]), self._given)


def _read(table: RowTable) -> tuple[npt.NDArray[np.int64], list[Any]]:
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
