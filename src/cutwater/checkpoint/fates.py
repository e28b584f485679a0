"""What became of checkpoints that are no longer pending, for whoever still talks about them (rules 26 to 28)."""

from enum import Enum

from cutwater.checkpoint.pending import AckOutcome
from cutwater.flow.ids import CheckpointId


class Fate(Enum):
    COMPLETED = "completed"
    DELETED = "dropped, its files deleted"
    KEPT = "dropped, its files kept"
    """A savepoint's files are the user's."""
    UNKNOWN = "dropped, but it may be complete"
    """So nothing of it is deleted."""


class Fates:
    """Remembers the latest ``kept`` ends; what is older is answered as unknown, and nothing is done about it."""

    def __init__(self, kept: int = 1000) -> None:
        self._kept = kept
        self._fates: dict[CheckpointId, Fate] = {}

    def remember(self, checkpoint: CheckpointId, fate: Fate) -> None:
        self._fates[checkpoint] = fate
        while len(self._fates) > self._kept:
            del self._fates[next(iter(self._fates))]

    def may_delete(self, checkpoint: CheckpointId) -> bool:
        return self._fates.get(checkpoint) is Fate.DELETED

    def may_be_complete(self, checkpoint: CheckpointId) -> bool:
        return self._fates.get(checkpoint) is Fate.UNKNOWN

    def outcome_of_late_acknowledgement(self, checkpoint: CheckpointId) -> AckOutcome:
        match self._fates.get(checkpoint):
            case None:
                return AckOutcome.UNKNOWN
            case Fate.COMPLETED:
                return AckOutcome.DUPLICATE
            case Fate.DELETED | Fate.KEPT | Fate.UNKNOWN:
                return AckOutcome.DISCARDED
