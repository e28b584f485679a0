"""The sessions of a key while something is done with them: stored as a list, in the order in which they were begun, and found by
their time."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from cutwater.flow.watermarks import Milliseconds
from cutwater.operators.window_content import KeyWindow
from cutwater.state.tables import RowTable


class KeySessions:
    """No two of them touch, so that they end in the order in which they start."""

    __slots__ = ("_begun", "_by_time", "_numbers")

    def __init__(self, stored: Iterable[Any] | None) -> None:
        self._begun = {number: KeyWindow(*each) for number, each in enumerate(stored or ())}
        """By a number, in the order in which they were begun."""
        self._by_time = sorted(self._begun, key=self._end_of)
        self._numbers = len(self._begun)

    def stored(self) -> list[KeyWindow]:
        return list(self._begun.values())

    def touched_by(self, start: Milliseconds, end: Milliseconds) -> list[KeyWindow]:
        """In the order in which they were begun."""
        return [self._begun[number] for number in sorted(self._by_time[self._touched(start, end)])]

    def put(self, new: KeyWindow) -> None:
        """It replaces those that it touches, and has the place of the one that was begun first: what is merged is merged in the
        order in which it was begun."""
        where = self._touched(new.start, new.end)
        replaced = self._by_time[where]
        if replaced:
            place = min(replaced)
        else:
            place, self._numbers = self._numbers, self._numbers + 1
        for number in replaced:
            if number != place:
                del self._begun[number]
        self._begun[place] = new
        self._by_time[where] = [place]

    def at(self, moment: Milliseconds) -> KeyWindow | None:
        """The one that the moment belongs to, if only as its last one."""
        where = self._first_to_end_at(moment + 1)
        if where == len(self._by_time):
            return None
        found = self._begun[self._by_time[where]]
        return found if found.start <= moment else None

    def drop(self, last: Milliseconds) -> bool:
        """The one whose last moment that was; False if there is none."""
        found = self.at(last)
        if found is None or found.end - 1 != last:
            return False
        del self._begun[self._by_time.pop(self._first_to_end_at(found.end))]
        return True

    def _touched(self, start: Milliseconds, end: Milliseconds) -> slice:
        first = behind = self._first_to_end_at(start)
        while behind < len(self._by_time) and self._begun[self._by_time[behind]].start <= end:
            behind += 1
        return slice(first, behind)

    def _first_to_end_at(self, end: Milliseconds) -> int:
        """Or later."""
        return bisect_left(self._by_time, end, key=self._end_of)

    def _end_of(self, number: int) -> Milliseconds:
        return self._begun[number].end


class HeldSessions:
    """Those of the keys that a step is about: read once for each key, however many of them are due, and put back once."""

    def __init__(self, table: RowTable) -> None:
        self._table = table
        self._held: dict[Any, KeySessions] = {}
        self._changed: dict[Any, KeySessions] = {}
        """In the order in which they were changed first: that in which a table gives what was put."""

    def __contains__(self, key: Any) -> bool:
        return key in self._held

    def of(self, key: Any) -> KeySessions:
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = KeySessions(self._table.get(key))
        return held

    def drop(self, key: Any, last: Milliseconds) -> None:
        """The session whose last moment that was, if there is one."""
        sessions = self.of(key)
        if sessions.drop(last):
            self._changed[key] = sessions

    def put_back(self) -> None:
        """At the end of each step, as a cut may come behind it."""
        for key, sessions in self._changed.items():
            left = sessions.stored()
            self._table.put(key, left) if left else self._table.delete(key)
        self._held.clear()
        self._changed.clear()
