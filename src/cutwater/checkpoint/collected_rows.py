"""Rows that ``collect`` brings to the driver: kept once each, in order, beside the checkpoints that committed them."""

from cutwater.checkpoint.attempt_log import AttemptLog
from cutwater.errors import StorageError
from cutwater.flow.ids import CheckpointId


class CollectedRows:
    """Of the current incarnation."""

    def __init__(self, attempts: AttemptLog) -> None:
        self._attempts = attempts
        self._storage = attempts.storage
        self._layout = attempts.layout

    def append(self, uid: str, checkpoint: CheckpointId, index: int, rows: bytes) -> None:
        """Rows that ``checkpoint`` committed. Idempotent: ``checkpoint`` and ``index`` are those of the subtask that wrote
        the rows, also when another one commits them again after a rescale."""
        incarnation = self._attempts.required().incarnation
        name = self._layout.collected_part(incarnation, uid, checkpoint, index)
        self._append_once(name, uid, checkpoint, index, rows)

    def append_whole(self, uid: str, index: int, rows: bytes) -> None:
        """All rows of a subtask that runs without checkpoints. They count for this attempt alone: the next begins anew, and
        its rows come in another order or go to another subtask."""
        record = self._attempts.required()
        name = self._layout.collected_whole(record.incarnation, uid, record.attempt, index)
        self._append_once(name, uid, CheckpointId(0), index, rows)

    def _append_once(self, name: str, uid: str, checkpoint: CheckpointId, index: int, rows: bytes) -> None:
        if not self._storage.create(name, rows) and self._storage.read(name) != rows:
            raise StorageError(
                f"Rows of {uid!r}, subtask {index}, checkpoint {checkpoint} are stored already, and they are not the same rows: "
                f"nothing was overwritten. Two subtasks committed under one name."
            )

    def read(self, uid: str) -> list[bytes]:
        """Ordered by (checkpoint, subtask)."""
        record = self._attempts.current()
        if record is None:
            return []
        folder = self._layout.collected(record.incarnation, uid)
        own = self._layout.collected_by(record.incarnation, uid, record.attempt)
        names = (
            name for name in self._storage.list(folder) if not name.startswith(f"{folder}a") or name.startswith(own)
        )
        return [self._storage.read(name) for name in names]
