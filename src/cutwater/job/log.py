"""What a job has to say to a person. It may run for months and fail now and then: the oldest lines go."""

import threading
from collections import deque

KEPT_LINES = 10_000


class JobLog:
    """Written and read from any thread."""

    def __init__(self, kept: int = KEPT_LINES) -> None:
        self._lines: deque[str] = deque(maxlen=kept)
        self._written = 0
        self._lock = threading.Lock()

    def append(self, line: str) -> None:
        with self._lock:
            self._lines.append(line)
            self._written += 1

    def lines(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._lines)

    def since(self, seen: int) -> tuple[tuple[str, ...], int]:
        """Those of the kept lines that came after the first ``seen`` ever written, and how many were ever written."""
        with self._lock:
            gone = self._written - len(self._lines)
            return tuple(self._lines)[max(0, seen - gone) :], self._written
