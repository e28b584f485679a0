"""On which checkpoints new ones may still build, as far as the driver knows: files of those must stay."""

from collections.abc import Iterable

from cutwater.flow.ids import CheckpointId, SubtaskId

NONE = CheckpointId(0)


class AcknowledgedBases:
    """Of one attempt with an incremental backend. A subtask's base never goes back, so nothing that it stores from now on
    references files of a checkpoint before the one it acknowledged last; but a pending checkpoint may hold an older part."""

    def __init__(self, subtasks: Iterable[SubtaskId], resumed: CheckpointId | None) -> None:
        """``resumed``: the checkpoint that the attempt restored and may build on."""
        self._latest = dict.fromkeys(subtasks, resumed or NONE)
        self._pending: dict[CheckpointId, CheckpointId] = {}
        """The oldest base of each checkpoint that has not ended."""

    def acknowledged(self, subtask: SubtaskId, checkpoint: CheckpointId, base: CheckpointId | None) -> None:
        known = base or NONE
        self._latest[subtask] = max(self._latest.get(subtask, NONE), known)
        self._pending[checkpoint] = min(self._pending.get(checkpoint, known), known)

    def ended(self, checkpoint: CheckpointId) -> None:
        """Its metadata is stored and tells what it references, or certainly never will be."""
        self._pending.pop(checkpoint, None)

    @property
    def oldest(self) -> CheckpointId:
        return min((*self._latest.values(), *self._pending.values()), default=NONE)
