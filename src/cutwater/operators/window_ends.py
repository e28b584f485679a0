"""Which windows are still to be told, and which panes are done with. Pure.

That a window was told follows from how far time had come, which is in the snapshot: no mark is kept for it.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

import numpy as np

from cutwater.flow.watermarks import MIN_WATERMARK, Milliseconds
from cutwater.operators.window_panes import is_over
from cutwater.windows import Windows


class WindowEnds:
    def __init__(self, windows: Windows, lateness: Milliseconds = 0) -> None:
        self.windows = windows
        self.lateness = lateness
        self.reached = MIN_WATERMARK
        """How far time has come: windows that ended by then were told."""
        self.due_until: Milliseconds | None = None
        """While windows are being told: time has come so far, and ``reached`` follows."""
        self._ends: list[Milliseconds] = []
        """Of the windows that have records and were not told yet; a heap."""
        self._waiting: set[Milliseconds] = set()
        """The same ends."""

    def expect(self, pane: Milliseconds) -> list[Milliseconds]:
        """The pane has records: each of its windows is to be told when it ends. The ends of those that were told already and
        are not done with."""
        return self.expect_ends(self.windows.ends_of_pane(pane))

    def expect_ends(self, ends: Iterable[Milliseconds]) -> list[Milliseconds]:
        """The same of the windows that end there."""
        told = []
        for end in ends:
            if end - 1 > self.reached:
                if end not in self._waiting:
                    self._waiting.add(end)
                    heappush(self._ends, end)
            elif end - 1 + self.lateness > self.reached:
                told.append(end)
        return told

    def open_ones(self) -> list[Milliseconds]:
        """The ends of all that are to be told, in any order."""
        return list(self._ends)

    def first(self) -> Milliseconds | None:
        return self._ends[0] if self._ends else None

    def due(self, time: Milliseconds) -> Iterator[Milliseconds]:
        """The ends of all windows whose last millisecond is ``time`` or before, in order."""
        while self._ends and self._ends[0] - 1 <= time:
            end = heappop(self._ends)
            self._waiting.discard(end)
            yield end

    def reach(self, time: Milliseconds, panes: Iterable[Milliseconds]) -> list[Milliseconds]:
        """Time has come to ``time``, and what was due was told. Those of ``panes`` that nobody needs any more."""
        if time <= self.reached:
            return []
        self.reached = time
        known = np.fromiter(panes, np.int64)
        done: list[Milliseconds] = known[is_over(self.windows, self.lateness, known, time)].tolist()
        return done
