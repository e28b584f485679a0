"""What one subtask contributed to one checkpoint, as it stands in the checkpoint's metadata."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cutwater.state.stored import StoredFile, StoredTable

Json = Any


@dataclass(frozen=True, slots=True)
class StoredOperator:
    uid: str
    inline: Json
    tables: tuple[StoredTable, ...]


@dataclass(frozen=True, slots=True)
class SubtaskSnapshot:
    """``finished``: the subtask had processed all its input; it restores as finished."""

    vertex: str
    index: int
    finished: bool
    operators: tuple[StoredOperator, ...]

    def files(self) -> Iterator[StoredFile]:
        """Each once, though several tables may be in one."""
        tables = (table for operator in self.operators for table in operator.tables)
        yield from {file.file: file for table in tables for file in table.files}.values()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files())


@dataclass(frozen=True, slots=True)
class SubtaskMetrics:
    """Durations in seconds. ``start_delay``: from the trigger until the first barrier was seen here."""

    start_delay: float
    alignment: float
    sync: float
    asynchronous: float
    state_bytes: int
    in_flight_bytes: int
    longest_gap: float
    records_in: int = 0
    """Since the attempt began, up to the cut; so are those written to sinks."""
    records_written: int = 0
    written_bytes: int = 0
    """What was stored anew: the rest of ``state_bytes`` are files of checkpoints before."""
