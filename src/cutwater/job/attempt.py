"""One attempt, as the driver keeps it: hears the subtasks, asks the coordinator, does what it says.

Runs on one thread and never blocks on storage: that work goes to ``DriverIO``, whose results come back to this thread.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cutwater.checkpoint import commands as do
from cutwater.checkpoint import events as on
from cutwater.checkpoint.attachments import put_away
from cutwater.checkpoint.bases import AcknowledgedBases
from cutwater.checkpoint.completed import (
    CompletedCheckpoint,
    SubtaskRecord,
    metrics_from_json,
    snapshot_from_json,
)
from cutwater.checkpoint.coordinator import Coordinator
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.publication import CertainlyNotStored, Published, UnknownWhetherStored
from cutwater.checkpoint.snapshot import SubtaskMetrics
from cutwater.checkpoint.statistics import CheckpointHistory, CheckpointInfo
from cutwater.control import messages as say
from cutwater.flow.clock import Clock
from cutwater.flow.ids import Attempt, CheckpointId, SubtaskId
from cutwater.job.attempt_output import AttemptOutput
from cutwater.job.definition import JobDefinition
from cutwater.job.deployment import Deployment
from cutwater.job.driver_io import DriverIO, TakeoverWatch

Json = Any


@dataclass(frozen=True, slots=True)
class RootCause:
    """Why an attempt failed, as the user should read it."""

    message: str
    trace: str = ""
    permanent: bool = False
    """Another attempt cannot help (rule 44)."""


class AttemptEvents(Protocol):
    """What the job hears of an attempt."""

    def checkpoint_ended(self, info: CheckpointInfo) -> None: ...

    def request_ended(self, request: on.RequestId, outcome: CheckpointInfo | str) -> None: ...

    def printed(self, lines: Sequence[str]) -> None:
        """Raises OSError: they cannot be shown, now or later."""

    def log(self, line: str) -> None: ...


class AttemptDriver:
    """``send`` delivers to one subtask. After ``failure`` is set nothing more is decided here."""

    def __init__(
        self,
        definition: JobDefinition,
        store: JobStore,
        attempt: Attempt,
        history: CheckpointHistory,
        deployment: Deployment,
        *,
        send: Callable[[SubtaskId, say.ToSubtask], None],
        io: DriverIO,
        clock: Clock,
        events: AttemptEvents,
    ) -> None:
        self._definition = definition
        self._store = store
        self._attempt = attempt
        self._deployment = deployment
        self._send = send
        self._io = TakeoverWatch(io, lambda error: self.fail(RootCause(str(error), permanent=True)))
        self._clock = clock
        self._events = events
        self._subtasks = definition.plan.subtasks
        record = store.record()
        assert record is not None, "the attempt is acquired before it runs"
        self._incarnation = record.incarnation
        # Whoever completed them, and whether or not anybody heard of it: retention goes on where it stands.
        history.adopt(record.accepted, set_aside=store.set_aside)
        self._coordinator = Coordinator(
            definition.checkpointing,
            subtasks=self._subtasks,
            sources=definition.plan.source_subtasks,
            committing=definition.committing_subtasks(),
            history=history,
        )
        self._timer: float | None = None
        self._bases = AcknowledgedBases(self._subtasks, deployment.resumed) if definition.backend.incremental else None
        self._storing: set[CheckpointId] = set()
        """Checkpoints whose metadata may be there or not: the storage has not said."""
        self._metrics: dict[CheckpointId, dict[SubtaskId, SubtaskMetrics]] = {}
        self._output = AttemptOutput(
            definition, store, self._io, log=events.log, fail=lambda problem: self.fail(RootCause(problem))
        )
        self.processes: dict[SubtaskId, say.Hello] = {}
        self.progress: dict[SubtaskId, say.Progress] = {}
        self.left: set[SubtaskId] = set()
        self.started = False
        self.finishing = False
        self.failure: RootCause | None = None

    # --- what comes in ------------------------------------------------------------------------------------------------

    def on_message(self, subtask: SubtaskId, message: say.Message) -> None:
        match message:
            case say.Hello():
                self.processes[subtask] = message
                self._send(subtask, self._deployment.message(subtask))
            case say.Running():
                self.handle(on.SubtaskRunning(subtask))
            case say.Acknowledge():
                self._acknowledged(subtask, message)
            case say.Decline(checkpoint, reason):
                self.handle(on.Declined(subtask, checkpoint, reason))
            case say.InputEnded():
                self.handle(on.InputEnded(subtask))
            case say.Committed(checkpoint):
                # Through the same queue as collected rows: they are stored before the commit counts.
                self._io.submit(lambda: None, lambda _: self.handle(on.OutputCommitted(subtask, checkpoint)))
            case say.CollectedRows(uid, checkpoint, writer, attachments):
                self._output.collect(uid, checkpoint, writer, attachments[0])
            case say.RequestPause(channel):
                self._send(self._definition.plan.sender_of[channel], say.PauseChannel(channel))
            case say.RequestResume(channel):
                self._send(self._definition.plan.sender_of[channel], say.ResumeChannel(channel))
            case say.ReservePositions(number, positions):
                self._reserve(subtask, number, positions)
            case say.SlowLoop(seconds, stack):
                self._events.log(
                    f"{subtask} has been in one call for {seconds:.0f} s; checkpoints wait for it. It is here:\n{stack}"
                )
            case say.PrintedLines(lines):
                self._print(lines)
            case say.Progress():
                self.progress[subtask] = message
            case say.SubtaskFailed():
                self._subtask_failed(subtask, message)
            case say.Goodbye():
                self.left.add(subtask)
            case _:
                self.fail(RootCause(f"{subtask} said something only the driver may say: {message!r}"))

    def handle(self, event: on.Event) -> None:
        for command in self._coordinator.handle(event, self._clock.monotonic()):
            self._execute(command)

    def tick(self) -> None:
        if self._timer is not None and self._clock.monotonic() >= self._timer:
            self._timer = None
            self.handle(on.Tick())

    @property
    def next_tick(self) -> float | None:
        """By the clock's monotonic time."""
        return self._timer

    def fail(self, cause: RootCause) -> None:
        """The first cause counts; what follows from it is no news."""
        self.failure = self.failure or cause

    def end(self, reason: str) -> None:
        """The subtasks are gone or going; requests that wait are answered."""
        self.handle(on.AttemptEnded(reason))
        self._output.end()

    # --- what goes out ------------------------------------------------------------------------------------------------

    def _execute(self, command: do.Command) -> None:
        match command:
            case do.ReserveId():
                self._io.submit(self._store.reserve_id, self._id_reserved)
            case do.AllowStart():
                self.started = True
                self._output.opened(self._deployment.visible)
                self._broadcast(say.StartProcessing())
            case do.SendTrigger(checkpoint, triggered_at, unaligned, savepoint, stop, to):
                trigger = say.TriggerCheckpoint(checkpoint, triggered_at, unaligned, savepoint, stop)
                for subtask in to:
                    self._send(subtask, trigger)
            case do.SendCutNow(checkpoint, triggered_at, to):
                for subtask in to:
                    self._send(subtask, say.CutNow(checkpoint, triggered_at))
            case do.SendAbort(checkpoint, reason):
                self._metrics.pop(checkpoint, None)
                if checkpoint not in self._storing:
                    self._no_more_references(checkpoint)
                self._broadcast(say.AbortCheckpoint(checkpoint, reason))
            case do.StoreMetadata():
                self._store_metadata(command)
            case do.NotifyCompleted(checkpoint):
                completed = say.CheckpointCompleted(checkpoint)
                self._output.begin_commit(checkpoint, lambda: self._broadcast(completed))
            case do.ConfirmOutput(checkpoint):
                self._output.confirm(checkpoint)
            case do.DeleteFiles(checkpoints):
                base = None if self._bases is None else self._bases.oldest
                self._io.submit(
                    lambda: self._store.delete_checkpoints(checkpoints, oldest_base=base), self._log_failure
                )
            case do.StopSources(drain):
                for subtask in self._definition.plan.source_subtasks:
                    self._send(subtask, say.StopSources(drain))
            case do.FinishSubtasks():
                self._output.settle(self._finish)
            case do.FailJob(reason):
                self.fail(RootCause(reason))
            case do.CompleteRequest(request, info):
                self._events.request_ended(request, info)
            case do.FailRequest(request, reason):
                self._events.request_ended(request, reason)
            case do.RecordCheckpoint(info):
                self._events.checkpoint_ended(info)
            case do.ReportAcknowledgement(subtask, checkpoint, outcome):
                self._events.log(f"acknowledgement of checkpoint {checkpoint} by {subtask}: {outcome.value}")
            case do.SetTimer(at):
                self._timer = at

    def _broadcast(self, message: say.ToSubtask) -> None:
        for subtask in self._subtasks:
            self._send(subtask, message)

    def _id_reserved(self, outcome: Any) -> None:
        match outcome:
            case Exception():
                self.handle(on.ReservationFailed(str(outcome)))
            case checkpoint:
                self.handle(on.IdReserved(checkpoint))

    def _acknowledged(self, subtask: SubtaskId, message: say.Acknowledge) -> None:
        snapshot, metrics = snapshot_from_json(message.snapshot), metrics_from_json(message.metrics)
        checkpoint = message.checkpoint
        if isinstance(self._store.storage, MemoryStorage):
            put_away(self._store.storage, snapshot, message.attachments)
        if self._bases is not None and checkpoint in {pending.id for pending in self._coordinator.pending}:
            self._bases.acknowledged(subtask, checkpoint, message.base)
        self._metrics.setdefault(checkpoint, {})[subtask] = metrics
        self.handle(on.Acknowledged(subtask, checkpoint, snapshot, metrics))

    def _store_metadata(self, command: do.StoreMetadata) -> None:
        metrics = self._metrics.pop(command.checkpoint, {})
        for older in [n for n in self._metrics if n < command.checkpoint - 100]:
            del self._metrics[older]
        acknowledged = CompletedCheckpoint(
            job=self._definition.name,
            incarnation=self._incarnation,
            attempt=self._attempt,
            id=command.checkpoint,
            kind=command.kind,
            unaligned=command.unaligned,
            folder=self._store.layout.checkpoint_folder(command.checkpoint),
            triggered_at=command.triggered_at,
            duration=max(0.0, self._clock.wall() - command.triggered_at),
            max_parallelism=self._definition.plan.max_parallelism,
            graph=self._definition.shapes(),
            subtasks=tuple(
                SubtaskRecord(snapshot, metrics[SubtaskId(snapshot.vertex, snapshot.index)])
                for snapshot in command.snapshots
            ),
        )
        completed = self._output.listed_by(acknowledged)
        self._storing.add(completed.id)
        self._io.submit(lambda: self._store.publish(completed), lambda outcome: self._published(completed, outcome))

    def _no_more_references(self, checkpoint: CheckpointId) -> None:
        """Other than those that its metadata lists, if that is stored."""
        if self._bases is not None:
            self._bases.ended(checkpoint)

    def _published(self, completed: CompletedCheckpoint, outcome: Any) -> None:
        if isinstance(outcome, Published | CertainlyNotStored):
            self._storing.discard(completed.id)
            self._no_more_references(completed.id)
        match outcome:
            case Published(path):
                self.handle(on.MetadataStored(completed.id, path))
            case CertainlyNotStored(reason):
                self.handle(on.MetadataFailed(completed.id, reason, unknown=False))
            case UnknownWhetherStored(reason):
                self.handle(on.MetadataFailed(completed.id, reason, unknown=True))
            case error:
                self.handle(on.MetadataFailed(completed.id, str(error), unknown=True))

    def _finish(self) -> None:
        self.finishing = True
        self._broadcast(say.Finish())

    def _reserve(self, subtask: SubtaskId, number: int, positions: Json) -> None:
        def stored(outcome: Any) -> None:
            if isinstance(outcome, Exception):
                self.fail(RootCause(f"Positions of {subtask} could not be reserved: {outcome}"))
            else:
                self._send(subtask, say.ReservationStored(number))

        uid, splits = positions["uid"], positions["splits"]
        self._io.submit(lambda: self._store.reservations.store(uid, subtask.index, number, splits), stored)

    def _subtask_failed(self, subtask: SubtaskId, failed: say.SubtaskFailed) -> None:
        line = f" ({failed.user_line})" if failed.user_line and failed.user_line not in failed.error else ""
        where = f"{failed.uid or subtask.vertex}[{subtask.index}]{line}"
        self.fail(RootCause(f"{where}: {failed.error}", failed.trace, failed.permanent))

    def _print(self, lines: Sequence[str]) -> None:
        try:
            self._events.printed(lines)
        except OSError as error:
            said = error.strerror or str(error)
            self.fail(RootCause(f"The driver's standard output, where rows are printed, fails: {said}", permanent=True))

    def _log_failure(self, outcome: Any) -> None:
        if isinstance(outcome, Exception):
            self._events.log(f"{type(outcome).__name__}: {outcome}")
