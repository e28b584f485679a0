"""How long the loop is busy without looking up, which a trigger may have to wait for (rule 10)."""

SLOW_SECONDS = 5.0
"""A slice that takes longer than this is told to the user, with what it is doing; nobody is killed for it."""


class LoopGap:
    """The loop enters and leaves; the reporting thread asks whether it has been inside for too long."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._entered: float | None = None
        self._told: float | None = None

    def enter(self, now: float) -> None:
        self._entered = now

    def leave(self, now: float) -> float:
        """The seconds of this slice."""
        assert self._entered is not None, "leave comes after enter"
        seconds = now - self._entered
        self._entered = None
        self.longest = max(self.longest, seconds)
        return seconds

    def take(self) -> float:
        """The longest since the last call, in seconds."""
        longest, self.longest = self.longest, 0.0
        return longest

    def newly_slow(self, now: float) -> float | None:
        """The seconds of a slice that has become slow; each slice is told once."""
        entered = self._entered
        if entered is None or entered == self._told or now - entered < SLOW_SECONDS:
            return None
        self._told = entered
        return now - entered
