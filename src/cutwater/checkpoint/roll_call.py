"""Which subtasks of an attempt run, and which have no more input."""

from collections.abc import Iterable

from cutwater.flow.ids import SubtaskId


class RollCall:
    """``sources`` are the subtasks that start barriers."""

    def __init__(self, subtasks: Iterable[SubtaskId], sources: Iterable[SubtaskId]) -> None:
        self.subtasks = frozenset(subtasks)
        self.sources = frozenset(sources)
        if not self.sources or not self.sources <= self.subtasks:
            raise ValueError("sources (at least one) must be among the subtasks")
        self._not_running = set(self.subtasks)
        self._ended: set[SubtaskId] = set()

    def runs(self, subtask: SubtaskId) -> bool:
        """Whether everybody runs, now that this one does."""
        self._not_running.discard(subtask)
        return not self._not_running

    def ends(self, subtask: SubtaskId) -> bool:
        """Whether it is news that the input of this one ended."""
        if subtask in self._ended or subtask not in self.subtasks:
            return False
        self._ended.add(subtask)
        return True

    @property
    def all_input_ended(self) -> bool:
        return self._ended == self.subtasks

    def to_trigger(self, *, unaligned: bool) -> frozenset[SubtaskId]:
        """Ended subtasks get every trigger: no barrier reaches them any more (rule 20)."""
        return self.subtasks if unaligned else self.sources | self._ended
