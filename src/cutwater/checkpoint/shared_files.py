"""The files of a job that several of its checkpoints may reference: deleted when certainly nobody does any more.

A checkpoint becomes invisible before a file of it goes, and a driver that dies between leaves files that the next attempt
finds: they are referenced by no metadata.
"""

from collections.abc import Sequence

from cutwater.checkpoint.checkpoint_folders import CheckpointFolders
from cutwater.checkpoint.completed import CompletedCheckpoint
from cutwater.checkpoint.layout import JobLayout
from cutwater.checkpoint.retention import choose_leftover_files, choose_unneeded_files
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.errors import DamagedCheckpoint, RestoreError
from cutwater.flow.ids import CheckpointId


class SharedFiles:
    def __init__(self, storage: CheckpointStorage, layout: JobLayout, folders: CheckpointFolders) -> None:
        self._storage = storage
        self._layout = layout
        self._folders = folders
        self._retired: dict[CheckpointId, frozenset[str]] = {}
        """What checkpoints referenced that are deleted: their files wait until no subtask can build on them."""

    def retire(self, checkpoints: Sequence[CheckpointId]) -> bool:
        """Before they are deleted. Of one whose metadata cannot be read, the next attempt finds what it alone had. Whether
        any of them had completed."""
        completed = False
        for checkpoint in checkpoints:
            try:
                self._retired[checkpoint] = self._folders.metadata(checkpoint).shared_files()
                completed = True
            except FileNotFoundError:
                # Never completed, so that nobody ever built on it. Also called again when it was retired already.
                if checkpoint not in self._retired:
                    self._storage.delete(list(self._storage.list(self._layout.shared_of(checkpoint))))
            except (DamagedCheckpoint, RestoreError):
                completed = True
        return completed

    def await_successors(self, id: CheckpointId, taken: CompletedCheckpoint) -> None:
        """Files that were taken over under ``id``: they stay until no new checkpoint can be the first to reference them."""
        self._retired[id] = taken.shared_files()

    def delete_unneeded(self, oldest_base: CheckpointId | None) -> None:
        """``oldest_base``: the oldest checkpoint that a new one may build on; None: none is."""
        if not any(self._retired.values()):
            self._retired.clear()
            return
        kept = self._referenced()
        if kept is None:
            return
        self._storage.delete(sorted(choose_unneeded_files(self._retired, kept, oldest_base)))
        self._retired = {
            id: files for id, files in self._retired.items() if oldest_base is not None and id >= oldest_base
        }

    def delete_leftovers(self, highest_id: CheckpointId) -> None:
        """When an attempt starts: what earlier ones wrote and no checkpoint references."""
        self._retired.clear()
        written = {name: self._layout.writer_of(name) for name in self._storage.list(self._layout.shared)}
        kept = self._referenced() if written else None
        if kept is not None:
            self._storage.delete(choose_leftover_files(written, kept, highest_id))

    def _referenced(self) -> frozenset[str] | None:
        """By any checkpoint that stands there, whether it counts or not; None if one of them cannot be read."""
        names: set[str] = set()
        for checkpoint in self._folders.with_metadata():
            try:
                names |= self._folders.metadata(checkpoint).shared_files()
            except FileNotFoundError:
                continue
            except (DamagedCheckpoint, RestoreError):
                return None
        return frozenset(names)
