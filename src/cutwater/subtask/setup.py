"""Everything a subtask is told before it starts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import pyarrow as pa

from cutwater.checkpoint.in_flight import InFlightRestore
from cutwater.checkpoint.snapshot import InFlightEdge
from cutwater.flow.ids import Attempt, CheckpointId, SubtaskId
from cutwater.graph.chaining import Vertex
from cutwater.graph.plan import InputChannel, OutputRoute
from cutwater.operators.operator import RestoredOperator
from cutwater.state.backend import StateBackend
from cutwater.state.frozen import FrozenTable
from cutwater.state.stored import StoredState, StoredTable
from cutwater.subtask.limits import FlowLimits

Json = Any


class Guarantee(Enum):
    """The mode of ``Checkpointing``; without checkpointing nothing is restored."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


@dataclass(frozen=True, slots=True)
class SubtaskSetup:
    """The same on Spark and in simulation."""

    job: str
    incarnation: str
    attempt: Attempt
    subtask: SubtaskId
    vertex: Vertex
    max_parallelism: int
    inputs: tuple[InputChannel, ...]
    routes: tuple[OutputRoute, ...]
    input_schemas: Mapping[int, pa.Schema]
    """Schema of the records of each edge, by edge number."""
    input_edges: Mapping[int, InFlightEdge]
    """What an unaligned checkpoint calls each incoming edge."""
    backend: StateBackend
    checkpointed: bool
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    stop_the_world: bool = False
    """Sources stand still from a checkpoint's barrier until it has completed."""
    limits: FlowLimits = field(default_factory=FlowLimits)
    spill_folder: str | None = None


@dataclass(frozen=True, slots=True)
class RestoredRows:
    """``batches`` of a ``RecordedTable``, and which of its rows are for this subtask."""

    restore: InFlightRestore
    batches: Callable[[], Iterable[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Resumed:
    """``states`` are those that this subtask alone goes on with, by uid."""

    checkpoint: CheckpointId
    states: Mapping[str, StoredState]


@dataclass(frozen=True, slots=True)
class SubtaskState:
    """What the subtask starts from."""

    finished: bool = False
    splits: Sequence[Json] = ()
    """For a source: ``{"split", "position", "ended"}`` each."""
    operators: Mapping[str, RestoredOperator] = field(default_factory=dict)
    in_flight: Sequence[RestoredRows] = ()
    """Rows that the checkpoint overtook on their way to this subtask."""
    resumed: Resumed | None = None
    """The checkpoint of this job that it goes on from, if what is stored next may reference its files."""
    visible_up_to: CheckpointId | None = None
    """The last checkpoint whose output may be visible, as far as the storage knows."""


class TableWriter(Protocol):
    """Stores a frozen table, on the snapshot thread. Beside it come the attachments that carry it, if no files do.

    ``base`` is the same state in the confirmed checkpoint that this one may build on.
    """

    def write(
        self, checkpoint: CheckpointId, uid: str, table: FrozenTable, base: StoredTable | None
    ) -> tuple[StoredTable, tuple[bytes, ...]]: ...


class Background(Protocol):
    """Two threads beside the loop (in simulation: two queues that the scheduler serves). Each keeps its order."""

    def snapshot(self, work: Callable[[], None], pause: float = 0.0) -> None:
        """``pause``: others may have the processor for so many seconds before it begins."""

    def commit(self, work: Callable[[], None]) -> None: ...
