"""Taking over a checkpoint that a path was restored from: its files become the job's own, so that new ones may build on them.

Each file gets a second name among the shared files of the job, or is copied where that cannot be. So whoever else has a part
in the checkpoint, its owner or another job that claims it too, deletes names of its own and never a file of this job's.
"""

import os
from contextlib import suppress
from dataclasses import replace

from cutwater.checkpoint.attempt_log import AttemptLog
from cutwater.checkpoint.attempts import AttemptRecord
from cutwater.checkpoint.checkpoint_folders import CheckpointFolders
from cutwater.checkpoint.completed import CompletedCheckpoint, encode_metadata
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_lock import hold_job
from cutwater.checkpoint.layout import JobLayout
from cutwater.checkpoint.shared_files import SharedFiles
from cutwater.checkpoint.statistics import CheckpointKind
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.checkpoint.verification import open_checkpoint
from cutwater.errors import CutwaterError
from cutwater.flow.ids import CheckpointId
from cutwater.state.stored import StoredFile

_COPIED_AT_ONCE = 8 << 20


def take_over(
    storage: CheckpointStorage,
    layout: JobLayout,
    id: CheckpointId,
    place: CheckpointStorage,
    checkpoint: CompletedCheckpoint,
) -> CompletedCheckpoint:
    """The same checkpoint with files of the job's own, written for ``id``, which nobody else uses. Its metadata comes behind
    them; both are leftovers until the record of the attempt names ``id``."""
    own: dict[str, StoredFile] = {}
    for number, file in enumerate(checkpoint.files()):
        name = layout.claimed(id, number)
        _bring(storage, name, place, file)
        own[file.file] = replace(file, file=name, shared=True)
    taken = checkpoint.with_files(lambda file: own[file.file])
    storage.put(layout.claimed_metadata(id), encode_metadata(taken))
    return taken


def _bring(storage: CheckpointStorage, name: str, place: CheckpointStorage, file: StoredFile) -> None:
    path = place.local_path(file.file)
    if path is not None and isinstance(storage, FileStorage) and storage.link(path, name):
        return
    with storage.open_write(name) as copy:
        for offset in range(0, file.size, _COPIED_AT_ONCE):
            copy.write(place.read(file.file, offset, _COPIED_AT_ONCE))


def give_up(path: str, storage: CheckpointStorage, layout: JobLayout) -> None:
    """Delete the checkpoint that was claimed, now that the job has enough of its own; unless somebody else has a right to it.

    That is the job in whose folder it stands, while it runs or may go on from it, and for a savepoint the user. What stands
    in the job's own folder is retired like others. Called again it does nothing.
    """
    with suppress(CutwaterError):  # it is gone, or in use
        _, checkpoint = open_checkpoint(path)
        owner = JobLayout(checkpoint.job)
        root = os.path.dirname(os.path.dirname(path))
        in_place = path == os.path.join(root, *owner.checkpoint_folder(checkpoint.id).split("/"))
        place = FileStorage(root)
        if checkpoint.kind is CheckpointKind.SAVEPOINT or not in_place or (place, owner) == (storage, layout):
            return
        with hold_job(place, owner.job, owner.lock):
            attempts = AttemptLog(place, owner)
            folders, record = CheckpointFolders(attempts), attempts.current()
            if record is None or not _may_go_on_from(checkpoint.id, record, folders):
                shared = SharedFiles(attempts, folders)
                shared.retire([checkpoint.id])
                folders.delete([checkpoint.id])
                shared.delete_unneeded(None)


def _may_go_on_from(checkpoint: CheckpointId, record: AttemptRecord, folders: CheckpointFolders) -> bool:
    """Whether the next attempt behind ``record`` may start from it: as one of its own, or as what the user restored last."""
    is_base = record.base is not None and folders.stands_at(checkpoint, record.base.path)
    return is_base or checkpoint in {each.id for each in folders.survey(record).completed}
