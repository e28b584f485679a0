"""What may be deleted, and in which order. Called only after a newer checkpoint is certainly published."""

from collections.abc import Collection

from cutwater.flow.ids import CheckpointId


def choose_retired(
    retained: Collection[CheckpointId], *, set_aside: Collection[CheckpointId] = (), at_most: int
) -> tuple[CheckpointId, ...]:
    """The checkpoints to delete, oldest first, so that ``at_most`` of ``retained`` stay; the latest always stays.

    Those ``set_aside`` are damaged or void: they take no place among the retained, and go when as many newer ones are
    there as are asked for.
    """
    at_most = max(1, at_most)
    kept = sorted(retained)[-at_most:]
    if len(kept) < at_most:
        return ()
    return tuple(sorted(each for each in {*retained, *set_aside} if each < kept[0]))


def choose_leftovers(
    on_disk: Collection[CheckpointId], with_metadata: Collection[CheckpointId], highest_id: CheckpointId
) -> tuple[CheckpointId, ...]:
    """Files of checkpoints that never completed, to be deleted when an attempt starts.

    Only up to the highest id that the older attempts had reserved when they were fenced: what is above is being written.
    """
    return tuple(sorted(id for id in on_disk if id not in with_metadata and id <= highest_id))
