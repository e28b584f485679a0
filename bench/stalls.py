"""Whether the machine itself stood still: a virtual one does, while its host serves others."""

import os
import threading
import time
from typing import Self

LOOKS_EVERY = 0.002


class StallWatch:
    """A thread on each core that looks at the clock, and notes how late it came to that. Who asks for nothing else waits for long
    only if nobody runs on that core, busy as it may be."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._look, args=(core,), daemon=True) for core in os.sched_getaffinity(0)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def take(self) -> float:
        """The longest since the last call, in seconds."""
        longest, self._longest = self._longest, 0.0
        return longest

    def _look(self, core: int) -> None:
        os.sched_setaffinity(threading.get_native_id(), {core})
        before = time.monotonic()
        while not self._is_over.wait(LOOKS_EVERY):
            now = time.monotonic()
            self._longest = max(self._longest, now - before - LOOKS_EVERY)
            before = now
