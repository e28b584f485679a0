"""How many subtasks of an attempt have reported in, and whether the others are worth waiting for."""

from typing import Final

HELLO_SECONDS: Final = 90.0
"""When none reports in for so long, Spark accepted the job without having room for it. Hundreds of workers on a few cores take
longer than this to start, but they come one after the other."""


class WorkerStarts:
    """Counted by the thread that serves the attempt; others may look."""

    def __init__(self, expected: int, now: float) -> None:
        self.expected = expected
        self._here = 0
        self._latest = now

    @property
    def missing(self) -> int:
        return self.expected - self._here

    def count(self, here: int, now: float) -> None:
        if here != self._here:
            self._here, self._latest = here, now

    def is_hopeless(self, now: float) -> bool:
        return self.missing > 0 and now - self._latest > HELLO_SECONDS

    def __str__(self) -> str:
        """What is waited for; empty: nothing."""
        return f"{self.missing} of {self.expected} workers have not started yet" if self.missing else ""
