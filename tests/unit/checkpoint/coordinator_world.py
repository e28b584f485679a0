"""A job in miniature around a coordinator: barriers travel read -> count -> write, storage and sinks answer in any order.

Whatever order is chosen, the rules below are checked after every command; a breach raises AssertionError.
"""

from collections.abc import Sequence

from cutwater.checkpoint import commands as do
from cutwater.checkpoint import events as on
from cutwater.checkpoint.coordinator import Coordinator
from cutwater.checkpoint.statistics import CheckpointHistory, CheckpointInfo
from cutwater.config import Checkpointing
from cutwater.flow.ids import CheckpointId, SubtaskId
from tests.unit.checkpoint.coordinator_script import ALL, COUNT, READ, WRITE, metrics, snapshot

COMMITTING = frozenset({COUNT, WRITE})
DOWNSTREAM = {READ: COUNT, COUNT: WRITE}


class World:
    def __init__(self, settings: Checkpointing, coordinator: type[Coordinator] = Coordinator) -> None:
        self.settings = settings
        self.history = CheckpointHistory()
        self.coordinator = coordinator(
            settings, subtasks=ALL, sources=(READ,), committing=COMMITTING, history=self.history
        )
        self.now = 0.0
        self.next_id = 1
        self.next_request = 1
        # What is under way, and may happen next.
        self.timer: float | None = None
        self.started = False
        self.silent: list[SubtaskId] = list(ALL)
        self.reserving = False
        self.storing: list[CheckpointId] = []
        self.acks: list[tuple[SubtaskId, CheckpointId]] = []
        self.commits: list[tuple[SubtaskId, CheckpointId]] = []
        self.cut: dict[SubtaskId, set[CheckpointId]] = {subtask: set() for subtask in ALL}
        self.input_ended: list[SubtaskId] = []
        self.finished = False
        self.failed = False
        self.over = False
        # What has been seen, for the rules.
        self.triggered: dict[CheckpointId, do.SendTrigger] = {}
        self.ended: dict[CheckpointId, CheckpointInfo] = {}
        self.may_be_stored: set[CheckpointId] = set()
        self.stored: set[CheckpointId] = set()
        self.announced: list[CheckpointId] = []
        self.committed: dict[SubtaskId, CheckpointId] = {}
        self.asked: set[on.RequestId] = set()
        self.answered: set[on.RequestId] = set()
        self.harmed: set[CheckpointId] = set()
        self.fair = False
        self.covers_all_input: set[CheckpointId] = set()
        self.standing_still_for: CheckpointId | None = None
        self.stopped_at: CheckpointId | None = None

    # --- what may happen ----------------------------------------------------------------------------------------------

    def helpful(self) -> list[tuple[str, object]]:
        """Steps of a job where nothing goes wrong; time is not among them."""
        steps: list[tuple[str, object]] = [("run", subtask) for subtask in self.silent]
        steps += [("reserve", None)] if self.reserving else []
        steps += [("ack", ack) for ack in self.acks]
        steps += [("store", checkpoint) for checkpoint in self.storing]
        steps += [("commit", commit) for commit in self.commits]
        return steps

    def possible(self) -> list[tuple[str, object]]:
        steps = [*self.helpful(), ("tick", 0.0), ("tick", 1.0), ("tick", 11.0), ("manual", None), ("savepoint", None)]
        steps += [("stop", False), ("stop", True)] if self.next_request % 4 == 0 else []
        steps += [("withdraw", request) for request in sorted(self.asked - self.answered)[:1]]
        if self.started and (ending := self.next_to_end()) is not None:
            steps.append(("end", ending))
        steps += [("no id", None)] if self.reserving else []
        steps += [("lose", ack) for ack in self.acks] + [("decline", ack) for ack in self.acks]
        steps += [("repeat", (subtask, known)) for known in list(self.triggered)[-2:] for subtask in (READ, WRITE)]
        steps += [(fault, checkpoint) for checkpoint in self.storing for fault in ("not stored", "unknown")]
        return steps

    def next_to_end(self) -> SubtaskId | None:
        ending = next((subtask for subtask in ALL if subtask not in self.input_ended), None)
        return None if ending == READ and self.standing_still_for is not None else ending

    def take(self, step: tuple[str, object]) -> None:
        match step:
            case ("run", SubtaskId() as subtask):
                self.silent.remove(subtask)
                self.tell(on.SubtaskRunning(subtask))
            case ("reserve", _):
                self.reserving = False
                self.next_id += 1
                self.tell(on.IdReserved(CheckpointId(self.next_id - 1)))
            case ("no id", _):
                self.reserving = False
                self.tell(on.ReservationFailed("bucket is gone"))
            case ("ack", (subtask, checkpoint)):
                self.acks.remove((subtask, checkpoint))
                self.tell(on.Acknowledged(subtask, checkpoint, snapshot(subtask), metrics()))
            case ("repeat", (subtask, checkpoint)):
                if (subtask, checkpoint) not in self.acks and checkpoint in self.cut[subtask]:
                    self.tell(on.Acknowledged(subtask, checkpoint, snapshot(subtask), metrics()))
            case ("lose", (subtask, checkpoint)):
                self.acks.remove((subtask, checkpoint))
                self.harmed.add(checkpoint)
            case ("decline", (subtask, checkpoint)):
                self.acks.remove((subtask, checkpoint))
                self.harmed.add(checkpoint)
                self.tell(on.Declined(subtask, checkpoint, "disk full"))
            case ("store", checkpoint):
                self.storing.remove(checkpoint)
                self.stored.add(checkpoint)
                self.tell(on.MetadataStored(checkpoint, f"chk-{checkpoint}"))
            case (("not stored" | "unknown") as fault, checkpoint):
                self.storing.remove(checkpoint)
                if fault == "not stored":
                    self.may_be_stored.discard(checkpoint)
                self.tell(on.MetadataFailed(checkpoint, "connection reset", unknown=fault == "unknown"))
            case ("commit", (subtask, checkpoint)):
                self.commits.remove((subtask, checkpoint))
                self.committed[subtask] = max(checkpoint, self.committed.get(subtask, checkpoint))
                self.tell(on.OutputCommitted(subtask, checkpoint))
            case ("end", SubtaskId() as subtask):
                self.input_ended.append(subtask)
                self.tell(on.InputEnded(subtask))
            case ("manual" | "savepoint" as what, _):
                request = on.RequestId(self.next_request)
                self.next_request += 1
                self.asked.add(request)
                manual = what == "manual"
                self.tell(on.ManualTriggerRequested(request) if manual else on.SavepointRequested(request, "sp"))
            case ("stop", bool() as drain):
                request = on.RequestId(self.next_request)
                self.next_request += 1
                self.asked.add(request)
                self.tell(on.SavepointRequested(request, "sp", stop=True, drain=drain))
            case ("withdraw", int() as number):
                self.tell(on.RequestWithdrawn(on.RequestId(number), "timed out"))
            case ("tick", float() as seconds):
                self.now += seconds
                self.tell(on.Tick())
            case _:
                raise NotImplementedError(step)

    def tell(self, event: on.Event) -> None:
        for command in self.coordinator.handle(event, self.now):
            self.obey(command)
        pending = self.coordinator.pending
        assert len(pending) + self.reserving <= self.settings.max_concurrent, "more than max_concurrent are pending"
        unaligned = any(checkpoint.unaligned for checkpoint in pending)
        assert not (unaligned and any(checkpoint.is_savepoint for checkpoint in pending)), "savepoint beside unaligned"

    # --- what is asked for, and whether it may be ---------------------------------------------------------------------

    def obey(self, command: do.Command) -> None:
        assert not (self.over and isinstance(command, do.TO_SUBTASKS)), f"{command} after the end of the attempt"
        match command:
            case do.AllowStart():
                assert not self.silent, "started before every subtask was running"
                assert not self.started, "started twice"
                self.started = True
            case do.ReserveId():
                assert self.started, "an id reserved before the start"
                assert not self.reserving, "two ids reserved at once"
                self.reserving = True
            case do.SendTrigger(checkpoint, to=to):
                assert self.started, "triggered before the start"
                new = checkpoint not in self.triggered
                assert not (new and self.standing_still_for is not None), "triggered while sources stand still"
                self.triggered.setdefault(checkpoint, command)
                if new and set(self.input_ended) == set(ALL):
                    self.covers_all_input.add(checkpoint)
                if new and command.stop:
                    self.standing_still_for = checkpoint
                for subtask in to:
                    self.cut_at(subtask, checkpoint)
            case do.SendCutNow(checkpoint, to=to):
                assert not self.triggered[checkpoint].savepoint, "a savepoint was cut unaligned"
                for subtask in to:
                    self.cut_at(subtask, checkpoint)
            case do.SendAbort(checkpoint):
                if self.standing_still_for == checkpoint:
                    self.standing_still_for = None
            case do.StopSources(drain):
                stopped = self.standing_still_for
                assert stopped is not None, "sources stopped without a savepoint"
                assert self.everybody_committed(stopped), "sources stopped before the savepoint's output was committed"
                self.standing_still_for = None
                self.stopped_at = None if drain else stopped
            case do.StoreMetadata(checkpoint, snapshots=snapshots):
                assert len(snapshots) == len(ALL), "stored without every acknowledgement"
                self.storing.append(checkpoint)
                self.may_be_stored.add(checkpoint)
            case do.NotifyCompleted(checkpoint):
                assert checkpoint in self.stored, "announced before it was stored"
                trigger = self.triggered[checkpoint]
                assert trigger.stop or not trigger.savepoint, "a savepoint of a running job was announced"
                assert not self.announced or checkpoint > self.announced[-1], "announced out of order"
                assert not self.announced or self.everybody_committed(self.announced[-1]), "announced before commits"
                self.announced.append(checkpoint)
                self.commits += [(subtask, checkpoint) for subtask in sorted(COMMITTING)]
            case do.ConfirmOutput(checkpoint):
                assert self.everybody_committed(checkpoint), "confirmed before every commit"
            case do.DeleteFiles(checkpoints):
                for checkpoint in checkpoints:
                    assert checkpoint in self.triggered, "files of a foreign checkpoint deleted"
                    assert not self.triggered[checkpoint].savepoint, "files of a savepoint deleted"
                    assert checkpoint not in self.history.retained, "files of a retained checkpoint deleted"
                    unclear = checkpoint in self.may_be_stored and checkpoint not in self.stored
                    assert not unclear, "files deleted of what may be stored"
            case do.RecordCheckpoint(info) if info.id is None:
                assert "no checkpoint id could be reserved" in (info.failure_reason or ""), "ended without an id"
            case do.RecordCheckpoint(info):
                assert info.id is not None
                assert info.id in self.triggered, "ended without a trigger"
                assert info.id not in self.ended, "ended twice"
                assert (info.status == "completed") == (info.id in self.stored)
                expired = "not acknowledged" in (info.failure_reason or "")
                assert not (self.fair and expired and info.id not in self.harmed), "expired although nobody failed"
                self.ended[info.id] = info
            case do.CompleteRequest(request) | do.FailRequest(request):
                assert request not in self.answered, "answered twice"
                self.answered.add(request)
            case do.FinishSubtasks():
                assert not self.finished, "finished twice"
                assert set(self.input_ended) == set(ALL), "finished before all input ended"
                assert self.announced, "finished without any checkpoint"
                covered = self.announced[-1] == self.stopped_at or self.covers_all_input & set(self.announced)
                assert covered, "finished without a final checkpoint"
                assert self.everybody_committed(self.announced[-1]), "finished before commits"
                self.finished = True
            case do.FailJob():
                self.failed = True
            case do.SetTimer(at):
                self.timer = at

    def cut_at(self, subtask: SubtaskId, checkpoint: CheckpointId) -> None:
        """A repeated trigger is a no-op; one that has not ended passes the barrier on."""
        if checkpoint in self.cut[subtask]:
            return
        self.cut[subtask].add(checkpoint)
        self.acks.append((subtask, checkpoint))
        if subtask not in self.input_ended and subtask in DOWNSTREAM:
            self.cut_at(DOWNSTREAM[subtask], checkpoint)

    def everybody_committed(self, checkpoint: CheckpointId) -> bool:
        return all(self.committed.get(subtask, 0) >= checkpoint for subtask in COMMITTING)


def run_to_the_end(world: World, choices: Sequence[int], *, crash: bool = False) -> None:
    """Anything goes for as long as there are choices; then nothing fails any more, input ends, and the job must finish.

    With ``crash`` the attempt ends where the choices end instead.
    """
    for choice in choices:
        # Every other step helps: with faults alone few checkpoints would come far enough to meet each other.
        steps = (world.helpful() if choice % 2 else []) or world.possible()
        world.take(steps[choice // 2 % len(steps)])
    if world.failed or crash:
        end_attempt(world)
        return
    world.fair = True
    for _ in range(500):
        steps = world.helpful()
        if steps:
            world.take(steps[0])
        elif (ending := world.next_to_end()) is not None:
            world.take(("end", ending))
        elif world.finished or world.failed:
            break
        else:
            assert world.timer is not None, "nothing under way and no timer: the job hangs"
            world.now = max(world.now, world.timer)
            world.take(("tick", 0.0))
    assert world.finished or world.failed, "the job does not finish"
    end_attempt(world)


def end_attempt(world: World) -> None:
    world.over = True
    world.tell(on.AttemptEnded("it is over"))
    for checkpoint in list(world.storing):
        world.take(("store", checkpoint))
    assert set(world.ended) == set(world.triggered), "a checkpoint never ended"
    assert world.answered == world.asked, "a request was never answered"
