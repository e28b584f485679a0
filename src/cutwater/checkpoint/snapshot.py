"""What one subtask contributed to one checkpoint, as it stands in the checkpoint's metadata."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cutwater.state.stored import StoredFile, StoredTable, stored_table_from_json

Json = Any


@dataclass(frozen=True, slots=True)
class StoredOperator:
    uid: str
    inline: Json
    tables: tuple[StoredTable, ...]


@dataclass(frozen=True, slots=True)
class EdgeName:
    """An edge between two chains, whatever number it has in a plan. ``tag``: which side output of ``source`` it reads."""

    source: str
    tag: str | None
    target: str
    port: int

    def __str__(self) -> str:
        return f"{self.source}{'' if self.tag is None else f' ({self.tag})'} -> {self.target}"


@dataclass(frozen=True, slots=True)
class InFlightEdge:
    """``schema``: of its records, as pyarrow prints it. ``exchange`` and ``key``: how they found their receiving subtask."""

    name: EdgeName
    schema: str
    exchange: str
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredInFlight:
    """Rows that an unaligned cut overtook on their way to a subtask. They refer to ``edges`` by number."""

    edges: tuple[InFlightEdge, ...]
    rows: tuple[int, ...]
    """How many came on each of them."""
    table: StoredTable


@dataclass(frozen=True, slots=True)
class SubtaskSnapshot:
    """``finished``: the subtask had processed all its input; it restores as finished."""

    vertex: str
    index: int
    finished: bool
    operators: tuple[StoredOperator, ...]
    in_flight: StoredInFlight | None = None

    def files(self) -> Iterator[StoredFile]:
        """Each once, though several tables may be in one."""
        tables = [table for operator in self.operators for table in operator.tables]
        if self.in_flight is not None:
            tables.append(self.in_flight.table)
        yield from {file.file: file for table in tables for file in table.files}.values()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files())

    @property
    def in_flight_bytes(self) -> int:
        return 0 if self.in_flight is None else sum(file.size for file in self.in_flight.table.files)


def in_flight_from_json(value: Json) -> StoredInFlight:
    edges = tuple(
        InFlightEdge(EdgeName(**each["name"]), each["schema"], each["exchange"], tuple(each["key"]))
        for each in value["edges"]
    )
    table = stored_table_from_json(value["table"])
    # Where they were not counted, any edge may have had some.
    return StoredInFlight(edges, tuple(value.get("rows", [table.rows] * len(edges))), table)


@dataclass(frozen=True, slots=True)
class SubtaskMetrics:
    """Durations in seconds. ``start_delay``: from the trigger until the checkpoint was first heard of here, by a barrier or by
    the driver; ``alignment``: from then until all barriers were there; ``processed_bytes``: of what came in on channels,
    meanwhile."""

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
    processed_bytes: int = 0
    unaligned: bool = False
    """It cut at once and waited for no barriers."""
