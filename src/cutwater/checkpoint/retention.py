"""What may be deleted, and in which order. Called only after a newer checkpoint is certainly published."""

from collections.abc import Collection, Sequence

from cutwater.checkpoint.completed import CompletedCheckpoint
from cutwater.checkpoint.statistics import CheckpointKind
from cutwater.flow.ids import CheckpointId


def choose_subsumed(
    completed: Sequence[CompletedCheckpoint], retain: int, *, unknown: Collection[CheckpointId] = ()
) -> tuple[CheckpointId, ...]:
    """The checkpoints to delete, oldest first, so that ``retain`` of them stay.

    The latest always stays, savepoints always stay, and so does every id of which it is ``unknown`` whether it was stored.
    """
    ids = sorted(each.id for each in completed if each.kind is not CheckpointKind.SAVEPOINT and each.id not in unknown)
    return tuple(ids[: -max(1, retain)])


def choose_deleted_on_cancel(completed: Sequence[CompletedCheckpoint]) -> tuple[CheckpointId, ...]:
    """For ``on_cancel="delete"``: all but savepoints, the oldest first, so that a crash in between keeps the latest."""
    return tuple(sorted(each.id for each in completed if each.kind is not CheckpointKind.SAVEPOINT))


def choose_leftovers(
    on_disk: Collection[CheckpointId], with_metadata: Collection[CheckpointId], highest_id: CheckpointId
) -> tuple[CheckpointId, ...]:
    """Files of checkpoints that never completed, to be deleted when an attempt starts.

    Only up to the highest id that the older attempts had reserved when they were fenced: what is above is being written.
    """
    return tuple(sorted(id for id in on_disk if id not in with_metadata and id <= highest_id))
