"""What is known about checkpoints that ended: one record each, and the history that outlives an attempt."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from cutwater.checkpoint.failures import ConsecutiveFailures
from cutwater.checkpoint.retention import choose_retired
from cutwater.checkpoint.snapshot import SubtaskMetrics
from cutwater.flow.ids import CheckpointId, SubtaskId


class CheckpointKind(StrEnum):
    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    FINAL = "final"


class CheckpointStatus(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    """Something went wrong; counts against ``tolerable_failures`` unless it was a savepoint."""
    SUBSUMED = "subsumed"
    """A newer one completed first."""
    ABORTED = "aborted"
    """Nobody needs it any more: the attempt ended, or its caller withdrew."""


@dataclass(frozen=True, slots=True)
class SubtaskCheckpointInfo:
    """One subtask's part. Durations in seconds; ``acknowledged_after`` counts from the trigger.

    ``start_delay`` lasts from the trigger until the checkpoint was first heard of here, ``alignment`` from then until all
    barriers were there and, unaligned, it had cut; ``processed_bytes`` of input were processed during that, and
    ``in_flight_bytes`` of it are stored because an unaligned cut had overtaken them. ``longest_gap``: how long the loop was
    in one piece of work at most, since the last cut.
    """

    vertex: str
    index: int
    acknowledged_after: float
    state_bytes: int
    in_flight_bytes: int
    alignment: float
    start_delay: float
    sync_duration: float
    async_duration: float
    longest_gap: float
    records_in: int = 0
    """Since the attempt began, up to the cut; so are those written to sinks."""
    records_written: int = 0
    written_bytes: int = 0
    processed_bytes: int = 0
    unaligned: bool = False
    """It cut at once and waited for no barriers."""


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """One checkpoint that ended. ``trigger_time`` is seconds since the epoch, durations are seconds. ``id`` is None if the
    storage gave it none: then it failed before any subtask heard of it.

    Bytes are sums over the subtasks; ``written_bytes`` of ``state_bytes`` were stored for this checkpoint, the others for
    earlier ones; ``in_flight_bytes`` are rows that an unaligned cut overtook, ``processed_bytes`` what subtasks went on with
    while they waited for barriers; ``alignment``, ``start_delay``, ``sync_duration``, ``async_duration`` and ``longest_gap``
    are those of the slowest subtask; ``unaligned``: at least one subtask cut so. Of a checkpoint that did not complete, they
    cover the subtasks that acknowledged.
    """

    id: CheckpointId | None
    kind: CheckpointKind
    status: CheckpointStatus
    trigger_time: float
    duration: float
    state_bytes: int
    in_flight_bytes: int
    alignment: float
    start_delay: float
    sync_duration: float
    async_duration: float
    failure_reason: str | None
    path: str | None
    unaligned: bool
    subtasks: tuple[SubtaskCheckpointInfo, ...]
    written_bytes: int = 0
    processed_bytes: int = 0
    longest_gap: float = 0.0


def describe_subtask(subtask: SubtaskId, metrics: SubtaskMetrics, acknowledged_after: float) -> SubtaskCheckpointInfo:
    return SubtaskCheckpointInfo(
        vertex=subtask.vertex,
        index=subtask.index,
        acknowledged_after=acknowledged_after,
        state_bytes=metrics.state_bytes,
        in_flight_bytes=metrics.in_flight_bytes,
        alignment=metrics.alignment,
        start_delay=metrics.start_delay,
        sync_duration=metrics.sync,
        async_duration=metrics.asynchronous,
        longest_gap=metrics.longest_gap,
        records_in=metrics.records_in,
        records_written=metrics.records_written,
        written_bytes=metrics.written_bytes,
        processed_bytes=metrics.processed_bytes,
        unaligned=metrics.unaligned,
    )


def describe_checkpoint(
    checkpoint: CheckpointId | None,
    kind: CheckpointKind,
    status: CheckpointStatus,
    *,
    trigger_time: float,
    duration: float,
    unaligned: bool,
    subtasks: Iterable[SubtaskCheckpointInfo],
    failure_reason: str | None = None,
    path: str | None = None,
) -> CheckpointInfo:
    parts = tuple(sorted(subtasks, key=lambda part: (part.vertex, part.index)))
    return CheckpointInfo(
        id=checkpoint,
        kind=kind,
        status=status,
        trigger_time=trigger_time,
        duration=duration,
        state_bytes=sum(part.state_bytes for part in parts),
        in_flight_bytes=sum(part.in_flight_bytes for part in parts),
        alignment=max((part.alignment for part in parts), default=0.0),
        start_delay=max((part.start_delay for part in parts), default=0.0),
        sync_duration=max((part.sync_duration for part in parts), default=0.0),
        async_duration=max((part.async_duration for part in parts), default=0.0),
        failure_reason=failure_reason,
        path=path,
        unaligned=unaligned,
        subtasks=parts,
        written_bytes=sum(part.written_bytes for part in parts),
        processed_bytes=sum(part.processed_bytes for part in parts),
        longest_gap=max((part.longest_gap for part in parts), default=0.0),
    )


class CheckpointHistory:
    """What one attempt leaves to the next: the records, the retained ids, the consecutive failures.

    One per job, handed to each attempt's coordinator in turn. ``retained`` starts with the completed checkpoints that this
    job owns in its storage; after a restore without claim the restored one is not among them. ``epoch_offset`` is what
    added to ``now`` gives seconds since the epoch.
    """

    def __init__(
        self, *, retained: Iterable[CheckpointId] = (), epoch_offset: float = 0.0, records_kept: int = 1000
    ) -> None:
        self.epoch_offset = epoch_offset
        self.failures = ConsecutiveFailures()
        self.counts: Counter[CheckpointStatus] = Counter()
        self.acknowledgements: Counter[str] = Counter()
        self.latest_completed_at: float | None = None
        """When the latest checkpoint (not savepoint) completed, on the clock of ``now``: ``checkpoint_age`` counts from it."""
        self._records: deque[CheckpointInfo] = deque(maxlen=records_kept)
        self._retained = sorted(retained)
        self._set_aside: set[CheckpointId] = set()

    def checkpoints(self) -> list[CheckpointInfo]:
        """Newest first, in the order in which they ended."""
        return list(reversed(self._records))

    @property
    def retained(self) -> tuple[CheckpointId, ...]:
        """Completed checkpoints that are kept, oldest first. Savepoints are the user's and never among them."""
        return tuple(self._retained)

    @property
    def latest_completed(self) -> CheckpointId | None:
        return self._retained[-1] if self._retained else None

    def adopt(self, checkpoints: Iterable[CheckpointId], *, set_aside: Iterable[CheckpointId] = ()) -> None:
        """Completed checkpoints of earlier attempts that this job goes on to own. Those ``set_aside`` stand there too, but
        are damaged or void and count no more."""
        self._set_aside.update(set_aside)
        self._retained = sorted({*self._retained, *checkpoints} - self._set_aside)

    def record(self, info: CheckpointInfo, now: float) -> None:
        """Called once for each checkpoint that ends, before ``keep``."""
        self._records.append(info)
        self.counts[info.status] += 1
        completed = info.status is CheckpointStatus.COMPLETED and info.kind is not CheckpointKind.SAVEPOINT
        if completed and info.id is not None and info.id > (self.latest_completed or 0):
            self.latest_completed_at = now

    def keep(self, checkpoint: CheckpointId, *, at_most: int) -> tuple[CheckpointId, ...]:
        """Add a completed checkpoint; the ids that are no longer kept. The latest always stays."""
        self._retained.append(checkpoint)
        retired = choose_retired(self._retained, set_aside=self._set_aside, at_most=at_most)
        self._retained = sorted({*self._retained} - {*retired})
        self._set_aside.difference_update(retired)
        return retired
