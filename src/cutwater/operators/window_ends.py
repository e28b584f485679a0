"""Which windows are still to be told, and which rows are done with. Pure.

That a window was told follows from how far time had come, which is in the snapshot: no mark is kept for it.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from cutwater.flow.watermarks import MIN_WATERMARK, Milliseconds
from cutwater.windows import Windows

AT_ONCE: Milliseconds = 0
"""When that is due by any clock which late rows let be told again."""


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
        self._needed: list[tuple[Milliseconds, Milliseconds]] = []
        """Until when each pane, or window by its start, that has records is needed; a heap."""
        self._held: set[Milliseconds] = set()
        """The same panes, or windows."""

    def expect(self, slot: Milliseconds, ends: Iterable[Milliseconds]) -> list[Milliseconds]:
        """The slot, a pane or the start of a window, has records: each of its windows, which end there, is to be told when it
        ends. The ends of those that were told already and are not done with."""
        if slot not in self._held:
            self._held.add(slot)
            last_end = self.windows.last_ends(slot)
            heappush(self._needed, (last_end - 1 + self.lateness, slot))
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

    def reach(self, time: Milliseconds) -> Iterator[Milliseconds]:
        """Time has come to ``time``, and what was due was told. The panes, or windows by their starts, that nobody needs any
        more: each is to be dropped."""
        if time <= self.reached:
            return
        self.reached = time
        while self._needed and self._needed[0][0] <= time:
            _, slot = heappop(self._needed)
            self._held.discard(slot)
            yield slot
