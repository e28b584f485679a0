"""Keys by when to look at them: however many there are, none of what is done here takes long."""

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

from cutwater.flow.watermarks import Milliseconds
from cutwater.state.parted_dict import SLOTS, PartedDict

TIDY_EVERY = 64
TIDIED = 2 * TIDY_EVERY
"""Each time that so many keys were removed, so many entries are looked through: more than become stale meanwhile."""
LOOKED_THROUGH = 4096
"""So many entries at most, stale ones too, to find the next keys."""

Entry = tuple[Any, ...]
"""The time first, the key last."""


class DueKeys:
    """Each key once. What is noted with times that ascend, as those of a clock do, stays in that order; what was restored may
    have any times. A time that is further away than ``longest`` is of a clock that was ahead, or it is this one that was set
    back: its key is looked at when ``longest`` is over, so that nobody waits behind it for longer.

    A key that is removed leaves a stale entry. There are never more than a few times as many of them as keys, or as were restored.
    """

    __slots__ = ("_due", "_entries", "_later", "_longest", "_numbers", "_removed", "_restored", "_sooner", "of_slot")

    def __init__(self, longest: Milliseconds) -> None:
        """``longest``: nothing is noted that is due later than that."""
        self._longest = longest
        self._entries = PartedDict()
        """Of each key the one that counts; any other is stale."""
        self.of_slot = self._entries.of_slot
        """A key is there if it is in that of its slot (``PartedDict``), for those who ask too often for a call."""
        self._due: list[Entry] = []
        """What was found to be due, and perhaps not removed yet."""
        self._sooner: deque[Entry] = deque()
        """The part of ``_later`` that was looked through for stale entries: all that is in here comes first."""
        self._later: deque[Entry] = deque()
        self._restored: list[Entry] = []
        """A heap."""
        self._numbers = 0
        """They break ties in it: keys need not be comparable."""
        self._removed = 0

    def __len__(self) -> int:
        return len(self._entries)

    def note(self, key: Any, time: Milliseconds) -> None:
        """Unless the key is there already."""
        here = self.of_slot[hash(key) % SLOTS]
        if key not in here:
            entry = here[key] = (time, key)
            self._later.append(entry)

    def note_restored(self, key: Any, time: Milliseconds) -> None:
        """The same, in any order of the times."""
        here = self.of_slot[hash(key) % SLOTS]
        if key not in here:
            self._numbers += 1
            entry = here[key] = (time, self._numbers, key)
            heappush(self._restored, entry)

    def remove(self, key: Any) -> None:
        """If it is there."""
        if self.of_slot[hash(key) % SLOTS].pop(key, None) is not None:
            self._removed += 1
            if self._removed % TIDY_EVERY == 0:
                self._tidy()

    def due(self, now: Milliseconds, most: int) -> list[Any]:
        """The next keys whose time has come, at most so many. They stay until they are removed."""
        self._due = [entry for entry in self._due if self._counts(entry)]
        for _ in range(LOOKED_THROUGH):
            if len(self._due) >= most or (entry := self._next(now)) is None:
                break
            if not self._counts(entry):
                continue
            if entry[0] <= now:
                self._due.append(entry)
            else:
                self._put_off(entry[-1], now + self._longest)
        return [entry[-1] for entry in self._due[:most]]

    def _next(self, now: Milliseconds) -> Entry | None:
        noted = self._sooner or self._later
        restored = self._restored
        if self._gives(restored, now) and not (self._gives(noted, now) and noted[0][0] < restored[0][0]):
            return heappop(restored)
        return noted.popleft() if self._gives(noted, now) else None

    def _gives(self, entries: Sequence[Entry], now: Milliseconds) -> bool:
        """Whether the time of its first one has come, or is one that nobody can have noted by this clock."""
        return bool(entries) and not now < entries[0][0] <= now + self._longest

    def _put_off(self, key: Any, time: Milliseconds) -> None:
        entry = self.of_slot[hash(key) % SLOTS][key] = (time, key)
        self._later.append(entry)

    def _counts(self, entry: Entry) -> bool:
        return self._entries.get(entry[-1], None) is entry

    def _tidy(self) -> None:
        """In steps: to look through millions at once would take long."""
        if len(self._sooner) + len(self._later) <= 2 * len(self._entries):
            return
        of_slot, sooner, later = self.of_slot, self._sooner, self._later
        for _ in range(min(TIDIED, len(later))):
            entry = later.popleft()
            key = entry[-1]
            if of_slot[hash(key) % SLOTS].get(key) is entry:
                sooner.append(entry)
        if not later:
            self._sooner, self._later = later, sooner
