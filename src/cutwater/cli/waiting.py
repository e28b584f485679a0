"""What a job waits for, in lines for those who see no display."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

FIRST_LINE_AFTER: Final = 1.0
NEXT_LINE_AFTER: Final = 10.0


@contextmanager
def told_if_long(say: Callable[[str], None], line: str) -> Iterator[None]:
    """Around what may take a while and says nothing itself."""
    timer = threading.Timer(FIRST_LINE_AFTER, say, (line,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Waiting:
    """Short waits are not worth a line, and a long one is told now and then."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._due: float | None = None
        self._told = ""

    def look(self, status: str, detail: str) -> None:
        """Some times a second. No ``detail``: nothing is waited for."""
        now = self._clock()
        if not detail:
            self._due, self._told = None, ""
            return
        if self._due is None:
            self._due = now + FIRST_LINE_AFTER
        line = f"{status}, {detail.splitlines()[0]}"
        if now >= self._due and line != self._told:
            self._say(line)
            self._due, self._told = now + NEXT_LINE_AFTER, line
