"""The order of completion notices: one checkpoint's output is visible everywhere before the next is announced (rule 42)."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from cutwater.flow.ids import CheckpointId, SubtaskId


@dataclass(frozen=True, slots=True)
class Announce:
    """Tell every subtask that this checkpoint completed."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class Confirm:
    """Every committing subtask has committed this checkpoint."""

    checkpoint: CheckpointId


Step = Announce | Confirm


class CompletionNotices:
    """Announces completed checkpoints in ascending order, each once, and waits for the commits in between.

    An id below one already taken in is never announced: that one's notice commits everything up to it.
    """

    def __init__(self, committing: Iterable[SubtaskId]) -> None:
        self._committing = frozenset(committing)
        self._waiting: deque[CheckpointId] = deque()
        self._announced: CheckpointId | None = None
        self._uncommitted: set[SubtaskId] = set()
        self._newest = CheckpointId(0)
        self._confirmed = CheckpointId(0)

    def is_confirmed(self, checkpoint: CheckpointId) -> bool:
        return self._confirmed >= checkpoint

    def completed(self, checkpoint: CheckpointId) -> list[Step]:
        if checkpoint <= self._newest:
            return []
        self._newest = checkpoint
        self._waiting.append(checkpoint)
        return self._advance()

    def committed(self, subtask: SubtaskId, checkpoint: CheckpointId) -> list[Step]:
        """A commit of anything older than what is announced says nothing about it and changes nothing."""
        if self._announced is None or checkpoint < self._announced:
            return []
        self._uncommitted.discard(subtask)
        return self._advance()

    def _advance(self) -> list[Step]:
        steps: list[Step] = []
        while not self._uncommitted:
            if self._announced is not None:
                self._confirmed = self._announced
                self._announced = None
                steps.append(Confirm(self._confirmed))
            if not self._waiting:
                break
            self._announced = self._waiting.popleft()
            self._uncommitted = set(self._committing)
            steps.append(Announce(self._announced))
        return steps
