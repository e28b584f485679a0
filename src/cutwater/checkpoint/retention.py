"""What may be deleted, and in which order. Called only after a newer checkpoint is certainly published."""

from collections.abc import Collection, Mapping

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


def choose_unneeded_files(
    retired: Mapping[CheckpointId, Collection[str]], kept: Collection[str], oldest_base: CheckpointId | None
) -> frozenset[str]:
    """The files of retired checkpoints that nobody needs: not those ``kept`` because a checkpoint that stays references them,
    nor those of a retired one that a new checkpoint may still build on.

    A subtask may not have heard of the newer checkpoint for which an older one was retired, and what it stores next then
    references files of the old one. ``oldest_base`` is the oldest that any subtask may build on; None: none builds on any.
    """
    needed = {*kept}
    gone: set[str] = set()
    for checkpoint, files in retired.items():
        if oldest_base is not None and checkpoint >= oldest_base:
            needed.update(files)
        else:
            gone.update(files)
    return frozenset(gone - needed)


def choose_leftover_files(
    written: Mapping[str, CheckpointId | None], kept: Collection[str], highest_id: CheckpointId
) -> tuple[str, ...]:
    """Of the shared files, each with the checkpoint that it was written for, those that an earlier attempt left to nobody.

    Only up to the highest id that those attempts had reserved when they were fenced: what is above is being written.
    """
    return tuple(
        sorted(name for name, id in written.items() if id is not None and id <= highest_id and name not in kept)
    )
