"""Whether the machine itself stood still: a virtual one does, while its host serves others."""

import threading
import time
from typing import Self

LOOKS_EVERY = 0.002
STALLED = 0.03
"""Who asks for nothing but the time waits for it so long only if nobody on the machine runs, busy as it may be."""


class StallWatch:
    """A thread that looks at the clock, and notes when it came to that late."""

    def __init__(self) -> None:
        self._late: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def stalled_since(self, began: float) -> bool:
        """Since ``began``, by the monotonic clock."""
        return bool(self._late) and self._late[-1] >= began

    def _look(self) -> None:
        before = time.monotonic()
        while not self._is_over.wait(LOOKS_EVERY):
            now = time.monotonic()
            if now - before > LOOKS_EVERY + STALLED:
                self._late.append(now)
            before = now
