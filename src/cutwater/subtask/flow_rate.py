"""How fast bytes flow, and how many may wait: no more than a moment's worth.

Behind a slow receiver, bytes that wait help nobody: barriers stand behind them, or have to store them. So buffers have the
size of what flows in a short time, and their full size only where the flow is fast.
"""

_WINDOW_SECONDS = 0.25
_MEMORY_SECONDS = 2.0


class FlowRate:
    """Bytes a second, over the last seconds: a stop for a checkpoint, or the burst behind one, changes little."""

    def __init__(self) -> None:
        self._rate: float | None = None
        self._bytes = 0
        self._since: float | None = None

    def add(self, size: int, now: float) -> None:
        if self._since is None:
            self._since = now
            return
        self._bytes += size
        elapsed = now - self._since
        if elapsed < _WINDOW_SECONDS:
            return
        measured = self._bytes / elapsed
        weight = min(1.0, elapsed / _MEMORY_SECONDS)
        self._rate = measured if self._rate is None else self._rate + weight * (measured - self._rate)
        self._bytes, self._since = 0, now

    def bytes_in(self, seconds: float, *, least: int, most: int) -> int:
        """What flows in ``seconds``; ``most`` as long as nobody knows."""
        if self._rate is None:
            return most
        return int(min(most, max(least, self._rate * seconds)))
