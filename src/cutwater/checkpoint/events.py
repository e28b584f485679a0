"""What the coordinator hears. Each event is a fact that has happened; the time it is handled at comes beside it."""

from dataclasses import dataclass
from typing import NewType

from cutwater.checkpoint.snapshot import SubtaskMetrics, SubtaskSnapshot
from cutwater.flow.ids import CheckpointId, SubtaskId

RequestId = NewType("RequestId", int)
"""One call of ``trigger_checkpoint``, ``savepoint`` or ``stop`` that waits for its answer; chosen by the caller, never reused."""


@dataclass(frozen=True, slots=True)
class SubtaskRunning:
    """Restored, opened, restored output committed."""

    subtask: SubtaskId


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The subtask's part of the checkpoint is stored; with memory storage the driver has put its attachments away."""

    subtask: SubtaskId
    checkpoint: CheckpointId
    snapshot: SubtaskSnapshot
    metrics: SubtaskMetrics


@dataclass(frozen=True, slots=True)
class Declined:
    subtask: SubtaskId
    checkpoint: CheckpointId
    reason: str


@dataclass(frozen=True, slots=True)
class InputEnded:
    """The subtask processed all its input; it lives on and acknowledges every checkpoint it is sent."""

    subtask: SubtaskId


@dataclass(frozen=True, slots=True)
class OutputCommitted:
    """All output of this subtask up to the checkpoint is visible."""

    subtask: SubtaskId
    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class ManualTriggerRequested:
    request: RequestId


@dataclass(frozen=True, slots=True)
class SavepointRequested:
    """``stop``: commit its output, then stop the sources; ``drain``: let windows fire behind it."""

    request: RequestId
    path: str
    stop: bool = False
    drain: bool = False


@dataclass(frozen=True, slots=True)
class RequestWithdrawn:
    """The caller waits no longer. A checkpoint whose metadata is already being stored is not called back."""

    request: RequestId
    reason: str


@dataclass(frozen=True, slots=True)
class IdReserved:
    """Answers ``ReserveId``: the id is durable in the storage and higher than every id before it."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class ReservationFailed:
    """Answers ``ReserveId``. An id that may have been reserved all the same is lost, never used."""

    reason: str


@dataclass(frozen=True, slots=True)
class MetadataStored:
    """Answers ``StoreMetadata``: the checkpoint is durable and can be restored."""

    checkpoint: CheckpointId
    path: str


@dataclass(frozen=True, slots=True)
class MetadataFailed:
    """Answers ``StoreMetadata``. ``unknown``: it may be stored all the same, so nothing of it may be deleted."""

    checkpoint: CheckpointId
    reason: str
    unknown: bool


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """The subtasks of this attempt are gone or going. Only answers about metadata may follow."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """The time of the last ``SetTimer`` has come; ticks at other times do no harm."""


Event = (
    SubtaskRunning | Acknowledged | Declined | InputEnded | OutputCommitted | ManualTriggerRequested | SavepointRequested
    | RequestWithdrawn | IdReserved | ReservationFailed | MetadataStored | MetadataFailed | AttemptEnded | Tick
)  # fmt: skip
