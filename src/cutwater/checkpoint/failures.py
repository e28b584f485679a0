"""Which ends of a checkpoint count against ``tolerable_failures``, and when the job has to fail (rules 5 and 6)."""

from dataclasses import dataclass
from enum import Enum

from cutwater.flow.ids import CheckpointId


class Cause(Enum):
    """Why a checkpoint did not complete."""

    ID_NOT_RESERVED = "its id could not be reserved"
    DECLINED = "a subtask declined it"
    EXPIRED = "it was not acknowledged in time"
    METADATA_NOT_STORED = "its metadata could not be stored"
    METADATA_UNKNOWN = "it is unknown whether its metadata was stored"
    SUBSUMED = "a newer checkpoint completed first"
    ATTEMPT_ENDED = "the attempt ended"
    WITHDRAWN = "its caller waits no longer"


COUNTED = frozenset(
    {Cause.ID_NOT_RESERVED, Cause.DECLINED, Cause.EXPIRED, Cause.METADATA_NOT_STORED, Cause.METADATA_UNKNOWN}
)
"""The others say nothing about whether checkpoints work: they were overtaken, or the job was not running."""


@dataclass(frozen=True, slots=True)
class NotCounted:
    pass


@dataclass(frozen=True, slots=True)
class Tolerated:
    consecutive: int


@dataclass(frozen=True, slots=True)
class TooMany:
    consecutive: int

    def __str__(self) -> str:
        row = "s in a row" if self.consecutive > 1 else ""
        return f"{self.consecutive} checkpoint{row} failed; tolerable_failures={self.consecutive - 1}"


Judgement = NotCounted | Tolerated | TooMany


class ConsecutiveFailures:
    """Counts over attempts: a restart does not make a storage that refuses checkpoints any better."""

    def __init__(self) -> None:
        self._consecutive = 0
        self._counted: set[CheckpointId] = set()

    @property
    def consecutive(self) -> int:
        return self._consecutive

    def failed(self, cause: Cause, checkpoint: CheckpointId | None, *, savepoint: bool, tolerable: int) -> Judgement:
        """Judge one failure; a checkpoint's first failure counts, further reports of the same id do not.

        ``checkpoint`` is None when no id could be reserved. ``TooMany`` starts the count anew: the job fails for these
        failures once, and the next attempt gets its own tolerance.
        """
        if savepoint or cause not in COUNTED or checkpoint in self._counted:
            return NotCounted()
        if checkpoint is not None:
            self._counted.add(checkpoint)
        self._consecutive += 1
        if self._consecutive <= tolerable:
            return Tolerated(self._consecutive)
        judgement = TooMany(self._consecutive)
        self._consecutive = 0
        return judgement

    def completed(self) -> None:
        """A checkpoint completed: the row of failures is broken. A savepoint's success proves as much."""
        self._consecutive = 0
        self._counted.clear()
