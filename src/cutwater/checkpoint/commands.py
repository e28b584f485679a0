"""What the coordinator wants done. The edge executes commands in the order given and reports results as events."""

from dataclasses import dataclass

from cutwater.checkpoint.events import RequestId
from cutwater.checkpoint.pending import AckOutcome
from cutwater.checkpoint.snapshot import SubtaskSnapshot
from cutwater.checkpoint.statistics import CheckpointInfo, CheckpointKind
from cutwater.flow.ids import CheckpointId, SubtaskId


@dataclass(frozen=True, slots=True)
class ReserveId:
    """Make the next id durable; answered by ``IdReserved`` or ``ReservationFailed``. At most one is outstanding."""

    kind: CheckpointKind


@dataclass(frozen=True, slots=True)
class AllowStart:
    """Every subtask is running: StartProcessing to all."""


@dataclass(frozen=True, slots=True)
class SendTrigger:
    """``triggered_at`` is seconds since the epoch. ``stop``: sources emit nothing behind this barrier until
    ``StopSources`` follows, or resume on ``SendAbort``. Sent again to a subtask that has already cut it is a no-op there."""

    checkpoint: CheckpointId
    triggered_at: float
    unaligned: bool
    savepoint: bool
    stop: bool
    to: tuple[SubtaskId, ...]


@dataclass(frozen=True, slots=True)
class SendCutNow:
    """The alignment timeout has passed: whoever has not cut cuts unaligned. ``triggered_at`` as in ``SendTrigger``."""

    checkpoint: CheckpointId
    triggered_at: float
    to: tuple[SubtaskId, ...]


@dataclass(frozen=True, slots=True)
class SendAbort:
    """To every subtask: release what this checkpoint holds. Deletes no files (``DeleteFiles`` does), drops no output."""

    checkpoint: CheckpointId
    reason: str


@dataclass(frozen=True, slots=True)
class StoreMetadata:
    """Publish atomically; answered by ``MetadataStored`` or ``MetadataFailed``. ``path`` is a savepoint's target."""

    checkpoint: CheckpointId
    kind: CheckpointKind
    triggered_at: float
    unaligned: bool
    path: str | None
    snapshots: tuple[SubtaskSnapshot, ...]


@dataclass(frozen=True, slots=True)
class NotifyCompleted:
    """To every subtask: sinks commit everything up to this id. Ids ascend; one is outstanding at a time (rule 42)."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class ConfirmOutput:
    """Every committing subtask committed this checkpoint: call ``committed_everywhere`` of the sinks, show collected rows."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Delete metadata and files that no other checkpoint needs. May repeat an id: a late subtask wrote after the abort."""

    checkpoints: tuple[CheckpointId, ...]


@dataclass(frozen=True, slots=True)
class StopSources:
    """The savepoint's output is committed: sources emit the end of input behind its barrier."""

    drain: bool


@dataclass(frozen=True, slots=True)
class FinishSubtasks:
    """Nothing is left to commit: Finish to all."""


@dataclass(frozen=True, slots=True)
class FailJob:
    """End the attempt; the restart strategy decides what follows."""

    reason: str


@dataclass(frozen=True, slots=True)
class CompleteRequest:
    request: RequestId
    info: CheckpointInfo


@dataclass(frozen=True, slots=True)
class FailRequest:
    request: RequestId
    reason: str


@dataclass(frozen=True, slots=True)
class RecordCheckpoint:
    """A checkpoint ended; it already stands in the history. For ``on_checkpoint`` and the log."""

    info: CheckpointInfo


@dataclass(frozen=True, slots=True)
class ReportAcknowledgement:
    """An acknowledgement that was not accepted, for the log."""

    subtask: SubtaskId
    checkpoint: CheckpointId
    outcome: AckOutcome


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Send ``Tick`` at this time (the clock of ``now``); replaces the timer set before."""

    at: float


Command = (
    ReserveId | AllowStart | SendTrigger | SendCutNow | SendAbort | StoreMetadata | NotifyCompleted
    | ConfirmOutput | DeleteFiles | StopSources | FinishSubtasks | FailJob | CompleteRequest | FailRequest
    | RecordCheckpoint | ReportAcknowledgement | SetTimer
)  # fmt: skip

TO_SUBTASKS = (
    AllowStart, SendTrigger, SendCutNow, SendAbort, NotifyCompleted, StopSources, FinishSubtasks,
)  # fmt: skip
"""Commands that make no sense once the subtasks of the attempt are gone."""
