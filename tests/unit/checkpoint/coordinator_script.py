"""A scripted attempt: short words for events, and the commands that matter to a test."""

from typing import Any, TypeVar

from cutwater.checkpoint import commands as do
from cutwater.checkpoint import events as on
from cutwater.checkpoint.coordinator import Coordinator
from cutwater.checkpoint.snapshot import SubtaskMetrics, SubtaskSnapshot
from cutwater.checkpoint.statistics import CheckpointHistory
from cutwater.config import Checkpointing
from cutwater.flow.ids import CheckpointId, SubtaskId

READ = SubtaskId("read", 0)
COUNT = SubtaskId("count", 0)
WRITE = SubtaskId("write", 0)
ALL = (READ, COUNT, WRITE)

C = TypeVar("C")


def metrics(**changed: Any) -> SubtaskMetrics:
    values: dict[str, Any] = {
        "start_delay": 0.1, "alignment": 0.2, "sync": 0.01, "asynchronous": 0.5,
        "state_bytes": 100, "in_flight_bytes": 10, "longest_gap": 0.02,
    }  # fmt: skip
    return SubtaskMetrics(**(values | changed))


def snapshot(subtask: SubtaskId, *, finished: bool = False) -> SubtaskSnapshot:
    return SubtaskSnapshot(subtask.vertex, subtask.index, finished, ())


class Attempt:
    """read -> count -> write on a clock the test moves. Every method returns the commands of its event."""

    def __init__(
        self,
        settings: Checkpointing | None = None,
        *,
        checkpointing: bool = True,
        history: CheckpointHistory | None = None,
        committing: tuple[SubtaskId, ...] = (WRITE,),
        coordinator: type[Coordinator] = Coordinator,
        first_id: int = 1,
        **chosen: Any,
    ) -> None:
        if settings is None and checkpointing:
            settings = Checkpointing(**({"interval": "10s", "timeout": "60s"} | chosen))
        self.history = history or CheckpointHistory()
        self.coordinator = coordinator(
            settings, subtasks=ALL, sources=(READ,), committing=committing, history=self.history
        )
        self.now = 0.0
        self.next_id = first_id
        self.log: list[do.Command] = []

    def tell(self, event: on.Event) -> list[do.Command]:
        commands = list(self.coordinator.handle(event, self.now))
        self.log += commands
        return commands

    def run(self) -> list[do.Command]:
        return [command for subtask in ALL for command in self.tell(on.SubtaskRunning(subtask))]

    def at(self, now: float) -> list[do.Command]:
        self.now = now
        return self.tell(on.Tick())

    def reserve(self) -> list[do.Command]:
        self.next_id += 1
        return self.tell(on.IdReserved(CheckpointId(self.next_id - 1)))

    def ack(self, checkpoint: int, *subtasks: SubtaskId, unaligned: bool = False) -> list[do.Command]:
        told = metrics(unaligned=unaligned)
        return [
            command
            for subtask in subtasks or ALL
            for command in self.tell(on.Acknowledged(subtask, CheckpointId(checkpoint), snapshot(subtask), told))
        ]

    def decline(self, checkpoint: int, subtask: SubtaskId = COUNT) -> list[do.Command]:
        return self.tell(on.Declined(subtask, CheckpointId(checkpoint), "disk full"))

    def stored(self, checkpoint: int) -> list[do.Command]:
        return self.tell(on.MetadataStored(CheckpointId(checkpoint), f"chk-{checkpoint}"))

    def lost(self, checkpoint: int, *, unknown: bool) -> list[do.Command]:
        return self.tell(on.MetadataFailed(CheckpointId(checkpoint), "connection reset", unknown=unknown))

    def complete(self, checkpoint: int) -> list[do.Command]:
        return self.ack(checkpoint) + self.stored(checkpoint)

    def commit(self, checkpoint: int) -> list[do.Command]:
        return self.tell(on.OutputCommitted(WRITE, CheckpointId(checkpoint)))

    def end(self, *subtasks: SubtaskId) -> list[do.Command]:
        return [command for subtask in subtasks or ALL for command in self.tell(on.InputEnded(subtask))]

    def manual(self, request: int) -> list[do.Command]:
        return self.tell(on.ManualTriggerRequested(on.RequestId(request)))

    def savepoint(self, request: int, *, stop: bool = False, drain: bool = False) -> list[do.Command]:
        return self.tell(on.SavepointRequested(on.RequestId(request), f"sp-{request}", stop=stop, drain=drain))

    def periodic(self, at: float) -> list[do.Command]:
        """Let the interval pass and the id be reserved."""
        return self.at(at) + self.reserve()


def started(**chosen: Any) -> Attempt:
    attempt = Attempt(**chosen)
    attempt.run()
    return attempt


def only(commands: list[do.Command], *kinds: type[C]) -> list[C]:
    return [command for command in commands if isinstance(command, kinds)]


def kinds(commands: list[do.Command]) -> list[str]:
    """Names in order, without the timer: it follows every change."""
    return [type(command).__name__ for command in commands if not isinstance(command, do.SetTimer)]
