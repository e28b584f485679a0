"""Rows that an unaligned cut overtakes, while the barriers are still awaited: as many as the budget allows, few in memory."""

from cutwater.errors import StorageError
from cutwater.flow.envelope import Row, RowKind
from cutwater.flow.ids import CheckpointId
from cutwater.subtask.cut_mark import Alignment, FirstHeard
from cutwater.subtask.spill import Spill


class Recording:
    """What was on its way to this subtask at its cut for ``checkpoint``.

    No row is copied: it is the inbox's own, which goes on to be processed, and beyond the memory that ``spill`` allows it is
    on disk for both.
    """

    def __init__(self, checkpoint: CheckpointId, heard: FirstHeard, most_bytes: int, spill: Spill) -> None:
        self.checkpoint = checkpoint
        self.heard = heard
        self.rows: list[Row] = []
        self._new_bytes = 0
        """Of rows that no checkpoint holds yet. Others were within the bounds, perhaps of several subtasks: if they counted, a
        job that is restored in the middle of a jam could store nothing before most of it is processed."""
        self.refusal: str | None = None
        """Why the checkpoint cannot have these rows, if it cannot."""
        self.alignment = Alignment()
        """When all barriers are there."""
        self._most_bytes = most_bytes
        self._spill = spill

    def add(self, row: Row) -> None:
        """If it is a record from before the barrier. Time is told anew after a restore, and so is the end."""
        if row.kind is not RowKind.DATA or row.behind >= self.checkpoint or self.refusal is not None:
            return
        self.rows.append(row)
        self._new_bytes += 0 if row.is_replayed else row.size
        if self._new_bytes > self._most_bytes:
            self.refusal = (
                f"rows of more than {self._most_bytes} bytes were on their way to it, the most that an unaligned checkpoint "
                "stores for one subtask (max_in_flight)"
            )
            return
        try:
            self._spill.keep(row)
        except StorageError as error:
            # The loop and its rows are as well as ever: it is the checkpoint that has no place for them.
            self.refusal = str(error)
