"""The folders of a job's checkpoints: which are there, what their metadata says, how one is published and deleted.

Each driver that may write here has an attempt; which checkpoints count for whom is told by ``AttemptRecord``.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from cutwater.checkpoint.attempt_log import AttemptLog
from cutwater.checkpoint.attempts import AttemptRecord
from cutwater.checkpoint.completed import CompletedCheckpoint, encode_metadata
from cutwater.checkpoint.damage import Candidate
from cutwater.checkpoint.layout import METADATA_FILE, metadata_file
from cutwater.checkpoint.publication import CertainlyNotStored, Publication, Published, UnknownWhetherStored
from cutwater.checkpoint.statistics import CheckpointKind
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.checkpoint.verification import read_metadata
from cutwater.errors import DamagedCheckpoint, StorageError, TakenOver, UncertainWrite
from cutwater.flow.ids import CheckpointId


@dataclass(frozen=True, slots=True)
class Survey:
    """The checkpoints of one incarnation that count, ascending; those whose metadata cannot be read; and those that do not
    count any more."""

    completed: tuple[CompletedCheckpoint, ...] = ()
    damaged: tuple[Candidate, ...] = ()
    void: tuple[CompletedCheckpoint, ...] = ()


class CheckpointFolders:
    def __init__(self, attempts: AttemptLog) -> None:
        self._attempts = attempts
        self._storage = attempts.storage
        self._layout = attempts.layout
        self._read: dict[CheckpointId, CompletedCheckpoint] = {}

    def on_disk(self) -> set[CheckpointId]:
        """With or without metadata."""
        names = self._storage.list(self._layout.checkpoints)
        return {id for name in names if (id := self._layout.checkpoint_of(name)) is not None}

    def with_metadata(self) -> list[CheckpointId]:
        names = self._storage.list(self._layout.checkpoints)
        ids = (self._layout.checkpoint_of(name) for name in names if name.endswith(f"/{METADATA_FILE}"))
        return sorted(id for id in ids if id is not None)

    def metadata(self, checkpoint: CheckpointId) -> CompletedCheckpoint:
        """Read once. Raises FileNotFoundError, DamagedCheckpoint, RestoreError."""
        if checkpoint not in self._read:
            self._read[checkpoint] = read_metadata(self._storage, self._layout.checkpoint_folder(checkpoint))
        return self._read[checkpoint]

    def survey(self, record: AttemptRecord) -> Survey:
        """From where the attempt of ``record`` stands."""
        completed: list[CompletedCheckpoint] = []
        void: list[CompletedCheckpoint] = []
        damaged: list[Candidate] = []
        for checkpoint in self.with_metadata():
            try:
                found = self.metadata(checkpoint)
            except FileNotFoundError:
                continue
            except DamagedCheckpoint as error:
                if record.may_be_ours(checkpoint):
                    damaged.append(Candidate(checkpoint, str(error)))
                continue
            if found.incarnation == record.incarnation and found.kind is not CheckpointKind.SAVEPOINT:
                counts = record.counts(found.id, found.attempt, found.incarnation)
                (completed if counts else void).append(found)
        return Survey(tuple(completed), tuple(damaged), tuple(void))

    def publish(self, checkpoint: CompletedCheckpoint, savepoint: CheckpointStorage | None = None) -> Publication:
        """Make the checkpoint complete by one exclusive create; ``savepoint`` is a savepoint's own storage.

        All files must be durable already. Repeating it with the same checkpoint is harmless. Raises TakenOver: it counts only
        if the driver that runs the job now had already seen it.
        """
        try:
            self._attempts.require_held()
        except TakenOver:
            raise
        except StorageError as error:
            return UnknownWhetherStored(str(error))
        storage = savepoint or self._storage
        name, content = metadata_file(checkpoint.folder), encode_metadata(checkpoint)
        path = f"{storage.url}/{checkpoint.folder}" if checkpoint.folder else storage.url
        try:
            created = storage.create(name, content)
        except UncertainWrite as error:
            return UnknownWhetherStored(str(error))
        except StorageError as error:
            return CertainlyNotStored(str(error))
        try:
            if not created and storage.read(name) != content:
                return UnknownWhetherStored(
                    f"{name} in {storage.url} exists already with another content; it is left alone."
                )
            self._attempts.require_held()
        except TakenOver:
            raise
        except (StorageError, OSError) as error:
            return UnknownWhetherStored(f"{name} in {storage.url} was written, then the storage failed: {error}")
        return Published(path)

    def delete(self, checkpoints: Sequence[CheckpointId]) -> None:
        """In the order given; each becomes invisible before it becomes incomplete. Repeatable."""
        for checkpoint in checkpoints:
            self._read.pop(checkpoint, None)
            self._storage.delete([self._layout.metadata(checkpoint)])
            self._storage.delete(list(self._storage.list(f"{self._layout.checkpoint_folder(checkpoint)}/")))

    def stands_at(self, checkpoint: CheckpointId, path: str) -> bool:
        """Whether ``path`` means this checkpoint's folder, however it is written."""
        place = self._storage.local_path(self._layout.checkpoint_folder(checkpoint))
        return place is not None and os.path.realpath(path.removesuffix(f"/{METADATA_FILE}")) == os.path.realpath(place)
