"""A checkpoint between its trigger and its end."""

from dataclasses import dataclass
from enum import Enum

from cutwater.checkpoint.events import RequestId
from cutwater.checkpoint.snapshot import SubtaskMetrics, SubtaskSnapshot
from cutwater.checkpoint.statistics import (
    CheckpointInfo,
    CheckpointKind,
    CheckpointStatus,
    describe_checkpoint,
    describe_subtask,
)
from cutwater.flow.ids import CheckpointId, SubtaskId


class AckOutcome(Enum):
    """What became of an acknowledgement (rule 26)."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown checkpoint"
    """Not an id or not a subtask of this attempt: nothing is done about it, least of all deleted."""
    DISCARDED = "discarded"
    """Too late: the checkpoint did not complete."""


class Phase(Enum):
    WAITING_FOR_ACKNOWLEDGEMENTS = "waiting for acknowledgements"
    WAITING_FOR_METADATA = "waiting for metadata"
    """From here on it may be complete in the storage whatever we hear: it is neither aborted nor deleted by us."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    snapshot: SubtaskSnapshot
    metrics: SubtaskMetrics
    at: float


class PendingCheckpoint:
    """Collects the acknowledgements of every subtask. ``triggered_at`` and deadlines are on the clock of ``now``."""

    def __init__(
        self,
        checkpoint: CheckpointId,
        kind: CheckpointKind,
        *,
        subtasks: frozenset[SubtaskId],
        triggered_at: float,
        expires_at: float,
        unaligned: bool,
        cut_at: float | None = None,
        requests: tuple[RequestId, ...] = (),
        path: str | None = None,
        stop: bool = False,
    ) -> None:
        self.id = checkpoint
        self.kind = kind
        self.triggered_at = triggered_at
        self.expires_at = expires_at
        self.unaligned = unaligned
        """Whether whoever is told to cut from now on is told to cut unaligned."""
        self._began_unaligned = unaligned
        self.cut_at = cut_at
        """When whoever has not cut by then is told to cut unaligned; None: never, or already told."""
        self.requests = requests
        self.path = path
        self.stop = stop
        self.phase = Phase.WAITING_FOR_ACKNOWLEDGEMENTS
        self._missing = set(subtasks)
        self._acknowledgements: dict[SubtaskId, Acknowledgement] = {}

    @property
    def is_savepoint(self) -> bool:
        return self.kind is CheckpointKind.SAVEPOINT

    @property
    def can_be_dropped(self) -> bool:
        return self.phase is Phase.WAITING_FOR_ACKNOWLEDGEMENTS

    @property
    def missing(self) -> tuple[SubtaskId, ...]:
        return tuple(sorted(self._missing))

    @property
    def snapshots(self) -> tuple[SubtaskSnapshot, ...]:
        return tuple(self._acknowledgements[subtask].snapshot for subtask in sorted(self._acknowledgements))

    @property
    def became_unaligned(self) -> bool:
        """Whether a subtask cut so, as far as they acknowledged. When the alignment timeout is over, all may have cut before it,
        and only their storage be slow."""
        return self._began_unaligned or any(part.metrics.unaligned for part in self._acknowledgements.values())

    @property
    def next_deadline(self) -> float:
        """When a tick is needed."""
        if self.cut_at is None or not self.can_be_dropped:
            return self.expires_at
        return min(self.cut_at, self.expires_at)

    def wait_for_metadata(self, now: float) -> None:
        """Every subtask acknowledged. The storage gets as long again: a hung one must not hold the job for ever."""
        self.phase = Phase.WAITING_FOR_METADATA
        self.expires_at += now - self.triggered_at

    def acknowledge(self, subtask: SubtaskId, acknowledgement: Acknowledgement) -> AckOutcome:
        if subtask in self._acknowledgements:
            return AckOutcome.DUPLICATE
        if subtask not in self._missing:
            return AckOutcome.UNKNOWN
        self._missing.remove(subtask)
        self._acknowledgements[subtask] = acknowledgement
        return AckOutcome.ACCEPTED

    def describe(
        self,
        status: CheckpointStatus,
        *,
        now: float,
        epoch_offset: float,
        failure_reason: str | None = None,
        path: str | None = None,
    ) -> CheckpointInfo:
        return describe_checkpoint(
            self.id,
            self.kind,
            status,
            trigger_time=self.triggered_at + epoch_offset,
            duration=now - self.triggered_at,
            unaligned=self.became_unaligned,
            subtasks=(
                describe_subtask(subtask, part.metrics, part.at - self.triggered_at)
                for subtask, part in self._acknowledgements.items()
            ),
            failure_reason=failure_reason,
            path=path,
        )
