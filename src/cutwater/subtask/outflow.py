"""How many rows make a slice, by what they become: it has to leave soon.

What a subtask has made and not yet sent stands before its next barrier. So it makes little at a time, and less where its
receivers are slow.
"""

_FORGETS = 0.9
"""What each slice leaves of the memory of those before it."""


class Outflow:
    """At most ``most_bytes`` a slice, and no more than leaves within ``most_seconds``."""

    def __init__(self, most_bytes: int, most_seconds: float, max_rows: int) -> None:
        self._most_bytes = most_bytes
        self._most_seconds = most_seconds
        self._max_rows = max_rows
        self._in_time = max_rows
        """Of so many rows the output left in time."""
        self._leaving_rows = 0
        """Of the slices since something left: what leaves is made of all of them."""
        self._bytes = self._rows = 0.0
        """Made, and of how many rows, over the last slices: what is combined leaves with one slice in many."""

    @property
    def rows(self) -> int:
        fitting = self._most_bytes * self._rows
        # Not divided first: behind thousands of slices that made nothing, what is remembered is too small to divide by.
        if fitting >= self._in_time * self._bytes:
            return self._in_time
        return max(1, int(fitting / self._bytes))

    def made(self, rows: int, size: int) -> None:
        """A slice of ``rows`` made so many bytes."""
        self._leaving_rows += rows
        self._bytes = _FORGETS * self._bytes + size
        self._rows = _FORGETS * self._rows + rows

    def left(self, seconds: float) -> None:
        """What was made since the last time took so long to leave."""
        rows, self._leaving_rows = self._leaving_rows, 0
        if seconds > self._most_seconds and rows:
            self._in_time = min(self._max_rows, max(1, int(rows * self._most_seconds / seconds)))
        elif seconds < self._most_seconds / 2:
            self._in_time = min(2 * self._in_time, self._max_rows)
