"""Rows of a held channel, in order: in memory first, then on local disk."""

from cutwater.flow.envelope import Row
from cutwater.subtask.spill import Spill


class HeldQueue:
    """Filled while its channel is held, drained once when it is released. Rows that are on disk then stay there until they
    are processed."""

    def __init__(self, memory_limit: int, folder: str | None) -> None:
        self._spill = Spill(memory_limit, folder)
        self._rows: list[Row] = []
        self.bytes = 0

    def append(self, row: Row) -> None:
        """The row is in, also where StorageError says that the disk does not take it: then it is in memory."""
        self._rows.append(row)
        self.bytes += row.size
        self._spill.keep(row)

    def drain(self) -> list[Row]:
        rows, self._rows = self._rows, []
        return rows
