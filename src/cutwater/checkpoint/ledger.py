"""The pending checkpoints of one attempt, from trigger to end: acknowledged, declined, expired, stored, subsumed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cutwater.checkpoint import commands as do
from cutwater.checkpoint import events as on
from cutwater.checkpoint.failures import COUNTED, Cause, Judgement
from cutwater.checkpoint.fates import Fate, Fates
from cutwater.checkpoint.pending import Acknowledgement, AckOutcome, PendingCheckpoint
from cutwater.checkpoint.requests import Reservation
from cutwater.checkpoint.statistics import CheckpointHistory, CheckpointInfo, CheckpointStatus, describe_checkpoint
from cutwater.flow.ids import CheckpointId, SubtaskId


@dataclass(frozen=True, slots=True)
class Completed:
    """Stored, and older ones subsumed. Notices and answers to its requests are up to the coordinator."""

    pending: PendingCheckpoint
    info: CheckpointInfo


@dataclass(frozen=True, slots=True)
class Dropped:
    """Aborted, recorded, its requests answered."""

    pending: PendingCheckpoint
    info: CheckpointInfo
    judgement: Judgement


class PendingLedger:
    """Every checkpoint that begins here ends exactly once, as ``Completed`` or ``Dropped``."""

    def __init__(
        self, history: CheckpointHistory, *, retain: int, tolerable: int, command: Callable[[do.Command], None]
    ) -> None:
        self._history = history
        self._retain = retain
        self._tolerable = tolerable
        self._do = command
        self._pending: dict[CheckpointId, PendingCheckpoint] = {}
        self._fates = Fates()
        self.last_ended_at: float | None = None

    @property
    def pending(self) -> tuple[PendingCheckpoint, ...]:
        """Oldest first."""
        return tuple(self._pending.values())

    def begin(self, pending: PendingCheckpoint, to: Iterable[SubtaskId]) -> None:
        self._pending[pending.id] = pending
        self._send_trigger(pending, to)

    def input_ended(self, subtask: SubtaskId) -> None:
        """No barrier reaches it any more, so it gets every trigger that it has not acknowledged (rule 20)."""
        for pending in self.pending:
            if subtask in pending.missing:
                self._send_trigger(pending, (subtask,))

    def _send_trigger(self, pending: PendingCheckpoint, to: Iterable[SubtaskId]) -> None:
        self._do(
            do.SendTrigger(
                pending.id,
                triggered_at=pending.triggered_at + self._history.epoch_offset,
                unaligned=pending.unaligned,
                savepoint=pending.is_savepoint,
                stop=pending.stop,
                to=tuple(sorted(to)),
            )
        )

    def next_deadline(self) -> float | None:
        return min((pending.next_deadline for pending in self._pending.values()), default=None)

    def acknowledge(self, event: on.Acknowledged, now: float) -> None:
        pending = self._pending.get(event.checkpoint)
        if pending is None:
            outcome = self._fates.outcome_of_late_acknowledgement(event.checkpoint)
        else:
            outcome = pending.acknowledge(event.subtask, Acknowledgement(event.snapshot, event.metrics, now))
        self._history.acknowledgements[outcome.value] += 1
        if outcome is not AckOutcome.ACCEPTED:
            self._do(do.ReportAcknowledgement(event.subtask, event.checkpoint, outcome))
        self._delete_again(event.checkpoint)
        if pending is not None and outcome is AckOutcome.ACCEPTED and not pending.missing:
            self._store(pending, now)

    def _delete_again(self, checkpoint: CheckpointId) -> None:
        """A subtask that is late wrote files, all or some, after those of the aborted checkpoint were deleted."""
        if self._fates.may_delete(checkpoint):
            self._do(do.DeleteFiles((checkpoint,)))

    def _store(self, pending: PendingCheckpoint, now: float) -> None:
        pending.wait_for_metadata(now)
        self._do(
            do.StoreMetadata(
                pending.id,
                pending.kind,
                triggered_at=pending.triggered_at + self._history.epoch_offset,
                unaligned=pending.became_unaligned,
                path=pending.path,
                snapshots=pending.snapshots,
            )
        )

    def not_reserved(self, reservation: Reservation, reason: str, now: float) -> Judgement:
        """A checkpoint that never got an id fails like one that did, and is recorded without one."""
        info = describe_checkpoint(
            None,
            reservation.kind,
            CheckpointStatus.FAILED,
            trigger_time=reservation.since + self._history.epoch_offset,
            duration=now - reservation.since,
            unaligned=False,
            subtasks=(),
            failure_reason=reason,
        )
        self.last_ended_at = now
        self._history.record(info, now)
        self._do(do.RecordCheckpoint(info))
        savepoint = reservation.savepoint is not None
        failures = self._history.failures
        return failures.failed(Cause.ID_NOT_RESERVED, None, savepoint=savepoint, tolerable=self._tolerable)

    def decline(self, subtask: SubtaskId, checkpoint: CheckpointId, reason: str, now: float) -> list[Dropped]:
        pending = self._pending.get(checkpoint)
        if pending is None or not pending.can_be_dropped:
            self._delete_again(checkpoint)
            return []
        return [self.drop(pending, Cause.DECLINED, f"{subtask} declined: {reason}", now)]

    def look_at_deadlines(self, now: float) -> list[Dropped]:
        """Expire what took too long; past the alignment timeout, tell every subtask that may not have cut to cut now."""
        dropped = []
        for pending in self.pending:
            if not pending.can_be_dropped:
                if now >= pending.expires_at:
                    dropped.extend(self._storage_is_silent(pending, now))
            elif now >= pending.expires_at:
                waited = ", ".join(str(subtask) for subtask in pending.missing)
                reason = f"not acknowledged within {now - pending.triggered_at:.1f} s by {waited}"
                dropped.append(self.drop(pending, Cause.EXPIRED, reason, now))
            elif pending.cut_at is not None and now >= pending.cut_at:
                pending.cut_at = None
                pending.unaligned = True
                triggered_at = pending.triggered_at + self._history.epoch_offset
                self._do(do.SendCutNow(pending.id, triggered_at, pending.missing))
        return dropped

    def _storage_is_silent(self, pending: PendingCheckpoint, now: float) -> list[Dropped]:
        reason = f"the storage has not answered {now - pending.triggered_at:.1f} s after the trigger"
        return self.metadata_failed(pending.id, reason, now, unknown=True)

    def metadata_stored(self, checkpoint: CheckpointId, path: str, now: float) -> Completed | None:
        pending = self._pending.pop(checkpoint, None)
        if pending is None:
            if self._fates.may_be_complete(checkpoint):
                # It ended as failed and stays so, but it is there: retention has to know of it.
                self._history.adopt((checkpoint,))
                self._fates.remember(checkpoint, Fate.COMPLETED)
            return None
        self._fates.remember(checkpoint, Fate.COMPLETED)
        self.last_ended_at = now
        self._history.failures.completed()
        info = self._record(pending, CheckpointStatus.COMPLETED, now, path=path)
        if not pending.is_savepoint:
            self._subsume_older_than(pending.id, info, now)
        return Completed(pending, info)

    def _subsume_older_than(self, id: CheckpointId, completed: CheckpointInfo, now: float) -> None:
        """Drop what the completed one makes superfluous. Savepoints, and whatever may be complete itself, stay."""
        for older in self.pending:
            if older.id < id and older.can_be_dropped and not older.is_savepoint:
                for request in older.requests:
                    self._do(do.CompleteRequest(request, completed))
                older.requests = ()
                self.drop(older, Cause.SUBSUMED, f"checkpoint {id} completed first", now)
        retired = self._history.keep(id, at_most=self._retain)
        if retired:
            self._do(do.DeleteFiles(retired))

    def metadata_failed(self, checkpoint: CheckpointId, reason: str, now: float, *, unknown: bool) -> list[Dropped]:
        pending = self._pending.get(checkpoint)
        if pending is None:
            return []
        cause = Cause.METADATA_UNKNOWN if unknown else Cause.METADATA_NOT_STORED
        return [self.drop(pending, cause, f"{cause.value}: {reason}", now)]

    def withdraw(self, request: on.RequestId, reason: str, now: float) -> list[Dropped]:
        """A savepoint that nobody waits for is dropped; other checkpoints go on for their own sake."""
        for pending in self.pending:
            if request not in pending.requests or not pending.can_be_dropped:
                continue
            if pending.is_savepoint:
                return [self.drop(pending, Cause.WITHDRAWN, reason, now)]
            pending.requests = tuple(waiting for waiting in pending.requests if waiting != request)
            self._do(do.FailRequest(request, reason))
        return []

    def drop_all(self, cause: Cause, reason: str, now: float) -> list[Dropped]:
        """What may already be stored stays pending until the storage has answered."""
        return [self.drop(pending, cause, reason, now) for pending in self.pending if pending.can_be_dropped]

    def drop(self, pending: PendingCheckpoint, cause: Cause, reason: str, now: float) -> Dropped:
        del self._pending[pending.id]
        self.last_ended_at = now
        self._do(do.SendAbort(pending.id, reason))
        self._fates.remember(pending.id, self._fate_of(pending, cause))
        if self._fates.may_delete(pending.id):
            self._do(do.DeleteFiles((pending.id,)))
        info = self._record(pending, _status_after(cause), now, failure_reason=reason)
        for request in pending.requests:
            self._do(do.FailRequest(request, f"The {pending.kind} {pending.id} did not complete: {reason}"))
        judgement = self._history.failures.failed(
            cause, pending.id, savepoint=pending.is_savepoint, tolerable=self._tolerable
        )
        return Dropped(pending, info, judgement)

    def _fate_of(self, pending: PendingCheckpoint, cause: Cause) -> Fate:
        if pending.is_savepoint:
            return Fate.KEPT
        return Fate.UNKNOWN if cause is Cause.METADATA_UNKNOWN else Fate.DELETED

    def _record(
        self,
        pending: PendingCheckpoint,
        status: CheckpointStatus,
        now: float,
        *,
        failure_reason: str | None = None,
        path: str | None = None,
    ) -> CheckpointInfo:
        offset = self._history.epoch_offset
        info = pending.describe(status, now=now, epoch_offset=offset, failure_reason=failure_reason, path=path)
        self._history.record(info, now)
        self._do(do.RecordCheckpoint(info))
        return info


def _status_after(cause: Cause) -> CheckpointStatus:
    if cause in COUNTED:
        return CheckpointStatus.FAILED
    return CheckpointStatus.SUBSUMED if cause is Cause.SUBSUMED else CheckpointStatus.ABORTED
