"""The coordinator of one attempt: events in, commands out. Nothing here waits, reads a clock or touches the outside.

    trigger -> reserve an id -> pending: waiting for acknowledgements -> pending: waiting for metadata -> completed
                                              |                                  |
                                              +----------- aborted <-------------+

The caller hands in every event with the time it is handled at, executes the commands in order, and reports results as
further events. A crash between two commands is a crash of the driver: whatever is not stored by then never happened, and
whatever is stored is found by the next start.
"""

from collections.abc import Iterable
from datetime import timedelta
from enum import Enum

from cutwater.checkpoint import commands as do
from cutwater.checkpoint import events as on
from cutwater.checkpoint.failures import Cause, Judgement, TooMany
from cutwater.checkpoint.ledger import Completed, Dropped, PendingLedger
from cutwater.checkpoint.notification import Announce, CompletionNotices, Confirm, Step
from cutwater.checkpoint.pending import PendingCheckpoint
from cutwater.checkpoint.requests import Reservation, WaitingRequests
from cutwater.checkpoint.statistics import CheckpointHistory, CheckpointInfo, CheckpointKind
from cutwater.checkpoint.stop import Stop
from cutwater.checkpoint.trigger import Decision, Delay, Moment, Occasion, Start, decide_trigger
from cutwater.config import Checkpointing
from cutwater.flow.ids import CheckpointId, SubtaskId

_LONGEST_PAUSE_BEFORE_FINAL_RETRY = timedelta(seconds=1)


class Life(Enum):
    WAITING_FOR_SUBTASKS = "waiting for subtasks"
    PROCESSING = "processing"
    FAILING = "failing"
    FINISHED = "finished"
    ENDED = "ended"


class Coordinator:
    """Decides for one attempt; ``history`` goes on to the next attempt's coordinator.

    ``sources`` are the subtasks that start barriers, ``committing`` those that hold sinks and report ``OutputCommitted``.
    Without ``settings`` there are no checkpoints: subtasks finish as soon as all input ended.
    """

    def __init__(
        self,
        settings: Checkpointing | None,
        *,
        subtasks: Iterable[SubtaskId],
        sources: Iterable[SubtaskId],
        committing: Iterable[SubtaskId] = (),
        history: CheckpointHistory,
    ) -> None:
        self._settings = settings
        self._subtasks = frozenset(subtasks)
        self._sources = frozenset(sources)
        committing = frozenset(committing)
        if not self._sources or not self._sources | committing <= self._subtasks:
            raise ValueError("sources (at least one) and committing subtasks must be among the subtasks")
        self._history = history
        self._life = Life.WAITING_FOR_SUBTASKS
        self._not_running = set(self._subtasks)
        self._ended: set[SubtaskId] = set()
        self._requests = WaitingRequests()
        self._reservation: Reservation | None = None
        self._ledger = PendingLedger(
            history,
            retain=settings.retain if settings is not None else 1,
            tolerable=settings.tolerable_failures if settings is not None else 0,
            command=self._do,
        )
        self._notices = CompletionNotices(committing)
        self._stop: Stop | None = None
        self._stopped_at: CheckpointInfo | None = None
        self._final: CheckpointId | None = None
        self._highest_id = CheckpointId(0)
        self._periodic_at = 0.0
        self._retry_final_at = 0.0
        self._timer: float | None = None
        self._commands: list[do.Command] = []

    @property
    def pending(self) -> tuple[PendingCheckpoint, ...]:
        """Oldest first; to look at, not to change."""
        return self._ledger.pending

    @property
    def stopped_at(self) -> CheckpointInfo | None:
        """The stop-with-savepoint whose output may be committed, while no later checkpoint covers it. If the attempt fails
        now, a restart must restore this savepoint: from an older checkpoint the same rows would be committed twice."""
        return self._stopped_at

    def handle(self, event: on.Event, now: float) -> tuple[do.Command, ...]:
        """What follows from the event, in order."""
        self._apply(event, now)
        if self._life is not Life.ENDED:
            self._expire_reservation(now)
            self._dropped(self._ledger.look_at_deadlines(now), now)
            self._finish_if_nothing_is_left()
            self._start_or_set_timer(now)
        commands, self._commands = tuple(self._commands), []
        return commands

    def _apply(self, event: on.Event, now: float) -> None:
        match event:
            case on.SubtaskRunning(subtask):
                self._subtask_running(subtask, now)
            case on.Acknowledged():
                self._ledger.acknowledge(event, now)
            case on.Declined(subtask, checkpoint, reason):
                self._dropped(self._ledger.decline(subtask, checkpoint, reason, now), now)
            case on.InputEnded(subtask):
                self._input_ended(subtask)
            case on.OutputCommitted(subtask, checkpoint):
                self._take_steps(self._notices.committed(subtask, checkpoint))
            case on.ManualTriggerRequested(request):
                if self._accepts(request):
                    self._requests.add_manual(request)
            case on.SavepointRequested(request):
                if self._accepts(request):
                    self._requests.add_savepoint(event)
            case on.RequestWithdrawn(request, reason):
                self._withdraw(request, reason, now)
            case on.IdReserved(checkpoint):
                self._id_reserved(checkpoint, now)
            case on.ReservationFailed(reason):
                self._reservation_failed(reason, now)
            case on.MetadataStored(checkpoint, path):
                self._completed(self._ledger.metadata_stored(checkpoint, path, now))
            case on.MetadataFailed(checkpoint, reason, unknown):
                self._dropped(self._ledger.metadata_failed(checkpoint, reason, now, unknown=unknown), now)
            case on.AttemptEnded(reason):
                self._attempt_ended(reason, now)
            case on.Tick():
                if self._timer is not None and now >= self._timer:
                    self._timer = None

    def _do(self, command: do.Command) -> None:
        if self._life is Life.ENDED and isinstance(command, do.TO_SUBTASKS):
            return
        self._commands.append(command)

    # --- starting -----------------------------------------------------------------------------------------------------

    def _subtask_running(self, subtask: SubtaskId, now: float) -> None:
        self._not_running.discard(subtask)
        if self._not_running or self._life is not Life.WAITING_FOR_SUBTASKS:
            return
        self._life = Life.PROCESSING
        self._do(do.AllowStart())
        if self._settings is not None:
            self._periodic_at = now + self._settings.interval.total_seconds()

    def _decide(self, settings: Checkpointing, now: float) -> Decision:
        return decide_trigger(
            Moment(
                now=now,
                processing=self._life is Life.PROCESSING,
                stopping=self._stop is not None and self._stop.holds_triggers,
                reserving=self._reservation is not None,
                pending=len(self.pending),
                max_concurrent=settings.max_concurrent,
                unaligned_pending=any(pending.unaligned for pending in self.pending),
                savepoint_waiting=self._requests.savepoint_waiting,
                manual_waiting=self._requests.manual_waiting,
                all_input_ended=self._ended == self._subtasks,
                final_pending=any(pending.kind is CheckpointKind.FINAL for pending in self.pending),
                final_completed=self._final is not None,
                retry_final_at=self._retry_final_at,
                periodic_at=self._periodic_at,
                min_pause=settings.min_pause.total_seconds() if settings.min_pause is not None else 0.0,
                last_ended_at=self._ledger.last_ended_at,
            )
        )

    def _start_or_set_timer(self, now: float) -> None:
        if self._settings is None:
            return
        wake_at = self._ledger.next_deadline()
        match self._decide(self._settings, now):
            case Start(occasion):
                if occasion is Occasion.PERIODIC:
                    self._periodic_at = now + self._settings.interval.total_seconds()
                expires_at = now + self._settings.timeout.total_seconds()
                self._reservation = self._requests.take_for(occasion, now, expires_at)
                if self._reservation.savepoint is not None and self._reservation.stops:
                    self._stop = Stop(self._reservation.savepoint)
                self._do(do.ReserveId(self._reservation.kind))
            case Delay(until):
                wake_at = until if wake_at is None else min(wake_at, until)
        if self._reservation is not None:
            wake_at = self._reservation.expires_at if wake_at is None else min(wake_at, self._reservation.expires_at)
        if wake_at is not None and wake_at != self._timer:
            self._timer = wake_at
            self._do(do.SetTimer(wake_at))

    def _id_reserved(self, checkpoint: CheckpointId, now: float) -> None:
        reservation, self._reservation = self._reservation, None
        if reservation is None or self._settings is None:
            return
        if checkpoint <= self._highest_id or checkpoint <= (self._history.latest_completed or 0):
            # Going on would overwrite or confuse a checkpoint that may be the one to restore.
            self._cancel_reservation(reservation, f"its id {checkpoint} had been used before")
            self._fail_job(f"Checkpoint id {checkpoint} was reserved although it had been used before")
            return
        self._highest_id = checkpoint
        if self._life is not Life.PROCESSING or reservation.is_abandoned:
            self._cancel_reservation(reservation, "the job is not running")
            return
        pending = reservation.begin(
            checkpoint, self._settings, self._subtasks, now, all_input_ended=self._ended == self._subtasks
        )
        self._ledger.add(pending)
        # Ended subtasks get every trigger: no barrier reaches them any more (rule 20).
        self._send_trigger(pending, self._subtasks if pending.unaligned else self._sources | self._ended)

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

    def _reservation_failed(self, reason: str, now: float) -> None:
        reservation, self._reservation = self._reservation, None
        if reservation is None:
            return
        if reservation.occasion is Occasion.FINAL:
            self._pause_before_final_retry(now)
        reason = f"no checkpoint id could be reserved: {reason}"
        self._cancel_reservation(reservation, reason)
        self._fail_if_too_many(self._ledger.not_reserved(reservation, reason, now), reason)

    def _expire_reservation(self, now: float) -> None:
        """A storage that stays silent fails one checkpoint after the other. Should the id come after all, its checkpoint is
        taken for its own sake; nobody waits for it any more."""
        reservation = self._reservation
        if reservation is None or self._settings is None or now < reservation.expires_at:
            return
        self._reservation_failed(f"the storage has not answered for {now - reservation.since:.1f} s", now)
        reservation.requests, reservation.expires_at = [], now + self._settings.timeout.total_seconds()
        self._reservation = reservation

    def _cancel_reservation(self, reservation: Reservation, reason: str) -> None:
        if reservation.stops:
            self._stop = None
        for request in reservation.requests:
            self._do(do.FailRequest(request, reason))

    def _input_ended(self, subtask: SubtaskId) -> None:
        if subtask in self._ended or subtask not in self._subtasks:
            return
        self._ended.add(subtask)
        for pending in self.pending:
            if subtask in pending.missing:
                self._send_trigger(pending, (subtask,))

    # --- ending -------------------------------------------------------------------------------------------------------

    def _completed(self, completed: Completed | None) -> None:
        """Stored and subsumed; now, in this order (rule 27), announced."""
        if completed is None:
            return
        pending, info = completed.pending, completed.info
        if pending.is_savepoint:
            self._savepoint_completed(pending, info)
            return
        if self._stopped_at is not None and pending.id > (self._stopped_at.id or 0):
            self._stopped_at = None
        if pending.kind is CheckpointKind.FINAL:
            self._final = pending.id
        self._announce(pending.id)
        self._complete_requests(pending, info)

    def _savepoint_completed(self, pending: PendingCheckpoint, info: CheckpointInfo) -> None:
        """Only a stop-with-savepoint commits output (rule 43)."""
        if not pending.stop or self._stop is None:
            self._complete_requests(pending, info)
            return
        self._stop.savepoint_completed(info)
        if self._life is Life.ENDED:
            self._abandon_stop("the attempt ended before its output was committed")
            return
        self._stopped_at = info
        self._announce(pending.id)

    def _announce(self, checkpoint: CheckpointId) -> None:
        if self._life is not Life.ENDED:
            self._take_steps(self._notices.completed(checkpoint))

    def _take_steps(self, steps: Iterable[Step]) -> None:
        for step in steps:
            match step:
                case Announce(checkpoint):
                    self._do(do.NotifyCompleted(checkpoint))
                case Confirm(checkpoint):
                    self._do(do.ConfirmOutput(checkpoint))
                    for command in self._stop.output_confirmed(checkpoint) if self._stop is not None else ():
                        self._do(command)

    def _abandon_stop(self, reason: str) -> None:
        for command in self._stop.attempt_ended(reason) if self._stop is not None else ():
            self._do(command)

    def _dropped(self, ends: Iterable[Dropped], now: float) -> None:
        for end in ends:
            if end.pending.stop:
                self._stop = None  # the abort told the sources to resume
            if end.pending.kind is CheckpointKind.FINAL:
                self._pause_before_final_retry(now)
            self._fail_if_too_many(end.judgement, f"checkpoint {end.info.id}: {end.info.failure_reason}")

    def _fail_if_too_many(self, judgement: Judgement, last: str) -> None:
        if isinstance(judgement, TooMany):
            failed = judgement.consecutive
            self._fail_job(
                f"{failed} checkpoint{'s in a row' if failed > 1 else ''} failed; tolerable_failures={failed - 1}. Last: {last}"
            )

    def _complete_requests(self, pending: PendingCheckpoint, info: CheckpointInfo) -> None:
        for request in pending.requests:
            self._do(do.CompleteRequest(request, info))

    def _pause_before_final_retry(self, now: float) -> None:
        if self._settings is not None:
            pause = min(self._settings.interval, _LONGEST_PAUSE_BEFORE_FINAL_RETRY)
            self._retry_final_at = now + pause.total_seconds()

    # --- requests and the end of the attempt --------------------------------------------------------------------------

    def _accepts(self, request: on.RequestId) -> bool:
        if self._settings is None:
            self._do(
                do.FailRequest(request, "The job runs without checkpoints: give its environment checkpointing=...")
            )
            return False
        if self._life in (Life.FAILING, Life.FINISHED, Life.ENDED):
            self._do(do.FailRequest(request, f"The job takes no more checkpoints: it is {self._life.value}"))
            return False
        return True

    def _withdraw(self, request: on.RequestId, reason: str, now: float) -> None:
        reservation = self._reservation
        if self._requests.withdraw(request):
            self._do(do.FailRequest(request, reason))
            return
        if reservation is not None and request in reservation.requests:
            reservation.requests.remove(request)
            self._do(do.FailRequest(request, reason))
            return
        self._dropped(self._ledger.withdraw(request, reason, now), now)

    def _finish_if_nothing_is_left(self) -> None:
        """Ended subtasks stay until their last output is committed and every checkpoint that runs has ended."""
        if self._life is not Life.PROCESSING or self._ended != self._subtasks:
            return
        if self.pending or self._reservation is not None or (self._stop is not None and self._stop.is_committing):
            return
        stopped = self._stop is not None and self._stop.replaces_final_checkpoint
        final_is_visible = self._final is not None and self._notices.is_confirmed(self._final)
        if self._settings is None or stopped or final_is_visible:
            self._life = Life.FINISHED
            self._do(do.FinishSubtasks())
            for request in self._requests.take_all():
                self._do(do.FailRequest(request, "The job finished before this could start"))

    def _fail_job(self, reason: str) -> None:
        if self._life in (Life.WAITING_FOR_SUBTASKS, Life.PROCESSING):
            self._life = Life.FAILING
            self._do(do.FailJob(reason))

    def _attempt_ended(self, reason: str, now: float) -> None:
        """Checkpoints whose metadata is being stored stay pending: their answers still come and still count."""
        if self._life is Life.ENDED:
            return
        self._life = Life.ENDED
        self._abandon_stop(reason)
        if self._reservation is not None:
            self._cancel_reservation(self._reservation, reason)
            self._reservation = None
        self._dropped(self._ledger.drop_all(Cause.ATTEMPT_ENDED, reason, now), now)
        for request in self._requests.take_all():
            self._do(do.FailRequest(request, reason))
