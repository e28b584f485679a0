"""Key groups: the unit in which keyed state is owned, stored and moved."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyGroupRange:
    """First and last key group that a subtask owns, both included."""

    first: int
    last: int

    def __contains__(self, group: int) -> bool:
        return self.first <= group <= self.last
