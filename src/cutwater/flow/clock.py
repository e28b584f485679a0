"""Time, only ever asked of a clock that tests can move."""

import os
import threading
import time
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds, for durations within one process."""

    def wall(self) -> float:
        """Seconds since the epoch, for moments that several processes compare."""

    def waited_for_core(self) -> float:
        """Seconds for which the calling thread could have run, and others had the core."""


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def waited_for_core(self) -> float:
        try:
            return _waits.seconds()
        except (OSError, IndexError, ValueError):
            return 0.0  # another system than Linux, or one that does not count


class _Waits(threading.local):
    """As Linux counts them. One file for each thread, open for as long as the process: it is read twice in every slice."""

    _file: int | None = None

    def seconds(self) -> float:
        if self._file is None:
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        return int(os.pread(self._file, 100, 0).split()[1]) / 1e9


_waits = _Waits()
