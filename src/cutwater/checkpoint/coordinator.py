"""The coordinator of one attempt: events in, commands out. Nothing here waits, reads a clock or touches the outside.

    trigger -> reserve an id -> pending: waiting for acknowledgements -> pending: waiting for metadata -> completed
                                              |                                  |
                                              +----------- aborted <-------------+

The caller hands in every event with the time it is handled at, executes the commands in order, and reports results as
further events. A crash between two commands is a crash of the driver: whatever is not stored by then never happened, and
whatever is stored is found by the next start.
"""

from collections.abc import Iterable
from enum import Enum

from cutwater.checkpoint import commands as do
from cutwater.checkpoint import events as on
from cutwater.checkpoint.announcements import Announcements
from cutwater.checkpoint.failures import Cause, Judgement, TooMany
from cutwater.checkpoint.ledger import Completed, Dropped, PendingLedger
from cutwater.checkpoint.pending import PendingCheckpoint
from cutwater.checkpoint.requests import Reservation
from cutwater.checkpoint.reserving import Reserving
from cutwater.checkpoint.roll_call import RollCall
from cutwater.checkpoint.statistics import CheckpointHistory, CheckpointInfo, CheckpointKind
from cutwater.checkpoint.trigger import Decision, Delay, Moment, Occasion, Start, decide_trigger
from cutwater.config import Checkpointing
from cutwater.flow.ids import CheckpointId, SubtaskId


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
        self._roll = RollCall(subtasks, sources)
        committing = frozenset(committing)
        if not committing <= self._roll.subtasks:
            raise ValueError("committing subtasks must be among the subtasks")
        self._history = history
        self._life = Life.WAITING_FOR_SUBTASKS
        self._reserving = Reserving(self._do)
        self._ledger = PendingLedger(
            history,
            retain=settings.retain if settings is not None else 1,
            tolerable=settings.tolerable_failures if settings is not None else 0,
            command=self._do,
        )
        self._announcements = Announcements(committing, self._do)
        self._highest_id = CheckpointId(0)
        self._timer: float | None = None
        self._commands: list[do.Command] = []

    @property
    def pending(self) -> tuple[PendingCheckpoint, ...]:
        """Oldest first; to look at, not to change."""
        return self._ledger.pending

    @property
    def stopped_at(self) -> CheckpointInfo | None:
        """The stop-with-savepoint that a restart must restore, while no later checkpoint covers it."""
        return self._announcements.stopped_at

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
                if self._roll.ends(subtask):
                    self._ledger.input_ended(subtask)
            case on.OutputCommitted(subtask, checkpoint):
                self._announcements.committed(subtask, checkpoint)
            case on.ManualTriggerRequested(request):
                if self._accepts(request):
                    self._reserving.requests.add_manual(request)
            case on.SavepointRequested(request):
                if self._accepts(request):
                    self._reserving.requests.add_savepoint(event)
            case on.RequestWithdrawn(request, reason):
                if not self._reserving.withdraw(request, reason):
                    self._dropped(self._ledger.withdraw(request, reason, now), now)
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
        if not self._roll.runs(subtask) or self._life is not Life.WAITING_FOR_SUBTASKS:
            return
        self._life = Life.PROCESSING
        self._do(do.AllowStart())
        if self._settings is not None:
            self._reserving.wait_an_interval(self._settings, now)

    def _decide(self, settings: Checkpointing, now: float) -> Decision:
        requests = self._reserving.requests
        return decide_trigger(
            Moment(
                now=now,
                processing=self._life is Life.PROCESSING,
                stopping=self._announcements.holds_triggers,
                reserving=self._reserving.waiting is not None,
                pending=len(self.pending),
                max_concurrent=settings.max_concurrent,
                unaligned_pending=any(pending.unaligned for pending in self.pending),
                savepoint_waiting=requests.savepoint_waiting,
                manual_waiting=requests.manual_waiting,
                all_input_ended=self._roll.all_input_ended,
                final_pending=any(pending.kind is CheckpointKind.FINAL for pending in self.pending),
                final_completed=self._announcements.final_completed,
                retry_final_at=self._reserving.retry_final_at,
                periodic_at=self._reserving.periodic_at,
                min_pause=settings.min_pause.total_seconds() if settings.min_pause is not None else 0.0,
                last_ended_at=self._ledger.last_ended_at,
            )
        )

    def _start_or_set_timer(self, now: float) -> None:
        if self._settings is None:
            return
        deadlines = [self._ledger.next_deadline()]
        match self._decide(self._settings, now):
            case Start(occasion):
                reservation = self._reserving.ask_for_id(occasion, self._settings, now)
                if reservation.savepoint is not None and reservation.stops:
                    self._announcements.stop_with(reservation.savepoint)
            case Delay(until):
                deadlines.append(until)
        if self._reserving.waiting is not None:
            deadlines.append(self._reserving.waiting.expires_at)
        wake_at = min((each for each in deadlines if each is not None), default=None)
        if wake_at is not None and wake_at != self._timer:
            self._timer = wake_at
            self._do(do.SetTimer(wake_at))

    def _id_reserved(self, checkpoint: CheckpointId, now: float) -> None:
        reservation = self._reserving.take()
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
            checkpoint, self._settings, self._roll.subtasks, now, all_input_ended=self._roll.all_input_ended
        )
        self._ledger.begin(pending, self._roll.to_trigger(unaligned=pending.unaligned))

    def _reservation_failed(self, reason: str, now: float) -> None:
        reservation = self._reserving.take()
        if reservation is None:
            return
        if reservation.occasion is Occasion.FINAL and self._settings is not None:
            self._reserving.pause_before_final_retry(self._settings, now)
        reason = f"no checkpoint id could be reserved: {reason}"
        self._cancel_reservation(reservation, reason)
        self._fail_if_too_many(self._ledger.not_reserved(reservation, reason, now), reason)

    def _expire_reservation(self, now: float) -> None:
        """A storage that stays silent fails one checkpoint after the other."""
        reservation = self._reserving.waiting
        if reservation is None or self._settings is None or now < reservation.expires_at:
            return
        self._reservation_failed(f"the storage has not answered for {now - reservation.since:.1f} s", now)
        self._reserving.go_on_without_requests(reservation, self._settings, now)

    def _cancel_reservation(self, reservation: Reservation, reason: str) -> None:
        if reservation.stops:
            self._announcements.give_up_stop()
        for request in reservation.requests:
            self._do(do.FailRequest(request, reason))

    # --- ending -------------------------------------------------------------------------------------------------------

    def _completed(self, completed: Completed | None) -> None:
        """Stored and subsumed; now, in this order (rule 27), announced. Who asked for a stop is answered when it is done."""
        if completed is None:
            return
        pending, info = completed.pending, completed.info
        if pending.stop and self._announcements.stop is not None:
            self._announcements.stopping_savepoint_completed(pending.id, info)
            return
        if not pending.is_savepoint:
            self._announcements.checkpoint_completed(pending.id, final=pending.kind is CheckpointKind.FINAL)
        for request in pending.requests:
            self._do(do.CompleteRequest(request, info))

    def _dropped(self, ends: Iterable[Dropped], now: float) -> None:
        for end in ends:
            if end.pending.stop:
                self._announcements.give_up_stop()  # the abort told the sources to resume
            if end.pending.kind is CheckpointKind.FINAL and self._settings is not None:
                self._reserving.pause_before_final_retry(self._settings, now)
            self._fail_if_too_many(end.judgement, f"checkpoint {end.info.id}: {end.info.failure_reason}")

    def _fail_if_too_many(self, judgement: Judgement, last: str) -> None:
        if isinstance(judgement, TooMany):
            self._fail_job(f"{judgement}. Last: {last}")

    # --- requests and the end of the attempt --------------------------------------------------------------------------

    def _accepts(self, request: on.RequestId) -> bool:
        if self._settings is None:
            refusal = "The job runs without checkpoints: give its environment checkpointing=..."
        elif self._life in (Life.FAILING, Life.FINISHED, Life.ENDED):
            refusal = f"The job takes no more checkpoints: it is {self._life.value}"
        else:
            return True
        self._do(do.FailRequest(request, refusal))
        return False

    def _finish_if_nothing_is_left(self) -> None:
        """Ended subtasks stay until their last output is committed and every checkpoint that runs has ended."""
        if self._life is not Life.PROCESSING or not self._roll.all_input_ended:
            return
        if self.pending or self._reserving.waiting is not None:
            return
        if self._settings is None or self._announcements.nothing_is_left:
            self._life = Life.FINISHED
            self._do(do.FinishSubtasks())
            self._reserving.refuse_all("The job finished before this could start")

    def _fail_job(self, reason: str) -> None:
        if self._life in (Life.WAITING_FOR_SUBTASKS, Life.PROCESSING):
            self._life = Life.FAILING
            self._do(do.FailJob(reason))

    def _attempt_ended(self, reason: str, now: float) -> None:
        """Checkpoints whose metadata is being stored stay pending: their answers still come and still count."""
        if self._life is Life.ENDED:
            return
        self._life = Life.ENDED
        self._announcements.attempt_ended(reason)
        if (reservation := self._reserving.take()) is not None:
            self._cancel_reservation(reservation, reason)
        self._dropped(self._ledger.drop_all(Cause.ATTEMPT_ENDED, reason, now), now)
        self._reserving.refuse_all(reason)
