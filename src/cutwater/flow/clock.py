"""Time, only ever asked of a clock that tests can move."""

import time
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds, for durations within one process."""

    def wall(self) -> float:
        """Seconds since the epoch, for moments that several processes compare."""


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()
