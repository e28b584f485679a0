"""What one subtask contributed to one checkpoint, as it stands in the checkpoint's metadata."""

from dataclasses import dataclass
from typing import Any

Json = Any


@dataclass(frozen=True, slots=True)
class StoredTable:
    """One state of one operator in one subtask: a file of Arrow IPC streams (with memory storage, bytes in the metadata)."""

    state: str
    file: str
    """Name in the storage; for memory storage the name of an attachment."""
    rows: int
    size: int
    checksum: str
    first_key_group: int
    last_key_group: int


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

    @property
    def size(self) -> int:
        return sum(table.size for operator in self.operators for table in operator.tables)


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
