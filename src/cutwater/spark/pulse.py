"""Whether this driver stood still for so long that its workers took it for dead (SIGSTOP, a suspended machine). Pure."""


class Pulse:
    """``beat`` with every round of the loop that answers workers; they end themselves after ``lease`` seconds of silence."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._last: float | None = None
        self._longest_lately: tuple[float, float] | None = None

    def beat(self, now: float) -> None:
        if self._last is not None and now - self._last >= self._lease:
            self._longest_lately = (now - self._last, now)
        self._last = now

    def frozen_for(self, now: float) -> float | None:
        """Seconds, if that was so shortly before ``now`` that it explains why a worker is gone."""
        if self._last is not None and now - self._last >= self._lease:
            return now - self._last
        if self._longest_lately is None:
            return None
        length, ended = self._longest_lately
        return length if now - ended < self._lease else None
