"""The files of a job that several of its checkpoints may reference: deleted when certainly nobody does any more.

A checkpoint becomes invisible before a file of it goes, and a driver that dies between leaves files that the next attempt
finds: they are referenced by no metadata.
"""

from collections.abc import Sequence
from contextlib import suppress

from cutwater.checkpoint.attempt_log import AttemptLog
from cutwater.checkpoint.checkpoint_folders import CheckpointFolders
from cutwater.checkpoint.completed import CompletedCheckpoint, decode_metadata
from cutwater.checkpoint.retention import choose_leftover_files, choose_unneeded_files
from cutwater.errors import DamagedCheckpoint, RestoreError
from cutwater.flow.ids import CheckpointId


class SharedFiles:
    def __init__(self, attempts: AttemptLog, folders: CheckpointFolders) -> None:
        self._attempts = attempts
        self._storage = attempts.storage
        self._layout = attempts.layout
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
                self._delete_what_was_written_for(checkpoint)
            except (DamagedCheckpoint, RestoreError):
                completed = True
        return completed

    def _delete_what_was_written_for(self, checkpoint: CheckpointId) -> None:
        """Its metadata is not there. If it never completed, nobody ever built on it; but it may also have been deleted before, and
        what others built on it stand on its files."""
        written = set(self._storage.list(self._layout.shared_of(checkpoint)))
        kept = self._referenced() if written else None
        if kept is not None:
            self._storage.delete(sorted(written.difference(kept, *self._retired.values())))

    def taken_over(self, id: CheckpointId) -> CompletedCheckpoint:
        """The base whose files were taken over under ``id``. Raises FileNotFoundError if it was retired; DamagedCheckpoint,
        RestoreError."""
        name = self._layout.claimed_metadata(id)
        return decode_metadata(f"{name} in {self._storage.url}", self._storage.read(name))

    def retire_taken_over(self, id: CheckpointId) -> None:
        """Nobody restores it any more. Its files stay until no new checkpoint can be the first to reference them."""
        with suppress(FileNotFoundError, DamagedCheckpoint, RestoreError):
            self._retired[id] = self.taken_over(id).shared_files()
        self._storage.delete([self._layout.claimed_metadata(id)])

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
        """By any checkpoint that stands there, whether it counts or not, and by the base if it was taken over; None if one of
        them cannot be read."""
        names: set[str] = set()
        record = self._attempts.current()
        taken = None if record is None or record.base is None else record.base.taken
        if taken is not None:
            try:
                names = {self._layout.claimed_metadata(taken), *self.taken_over(taken).shared_files()}
            except FileNotFoundError:
                pass  # retired
            except (DamagedCheckpoint, RestoreError):
                return None
        for checkpoint in self._folders.with_metadata():
            try:
                names |= self._folders.metadata(checkpoint).shared_files()
            except FileNotFoundError:
                continue
            except (DamagedCheckpoint, RestoreError):
                return None
        return frozenset(names)
