"""The longest slice: how long the loop was busy without looking up, which a trigger may have to wait for (rule 10)."""


class LoopGap:
    def __init__(self) -> None:
        self.longest = 0.0

    def take(self) -> float:
        """The longest since the last call, in seconds."""
        longest, self.longest = self.longest, 0.0
        return longest
