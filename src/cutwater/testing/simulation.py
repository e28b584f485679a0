"""A whole job in one process and one thread, one step at a time, in the order that ``choose`` decides."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cloudpickle  # type: ignore[import-untyped]  # ships no types

from cutwater.checkpoint.damage import FallBack, RefuseRestore, RestoreLatest
from cutwater.checkpoint.events import RequestId
from cutwater.checkpoint.job_store import JobStore, Restored
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.start import Resume, StartFresh
from cutwater.checkpoint.statistics import CheckpointHistory, CheckpointInfo
from cutwater.checkpoint.table_writer import TableWriter as StoresTables
from cutwater.config import CheckpointMode
from cutwater.control.messages import CollectedRows, Hello, PrintedLines, ToDriver, ToSubtask
from cutwater.errors import CutwaterError, JobFailed
from cutwater.flow.ids import CheckpointId, SubtaskId
from cutwater.graph.plan import RelayPlace, SubtaskPlace
from cutwater.job.attempt import AttemptDriver
from cutwater.job.definition import JobDefinition
from cutwater.job.deployment import Deployment, deploy_fresh, deploy_reserved, deploy_restored, state_from
from cutwater.subtask.operator_subtask import OperatorSubtask
from cutwater.subtask.relay import Relay
from cutwater.subtask.setup import TableWriter
from cutwater.subtask.source_subtask import SourceSubtask
from cutwater.subtask.subtask import Subtask
from cutwater.testing.actors import (
    BackgroundQueues,
    DriverQueue,
    LoopActor,
    ReaderActor,
    RelayActor,
    SimulatedIO,
)
from cutwater.testing.clock import ManualClock
from cutwater.testing.exchange import Exchange

Choose = Callable[[int], int]
"""Given how many things could happen next, which one does."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something that could happen next: ``kind`` says which sort of thread or queue of a real job would do it, ``actor`` whose."""

    kind: str
    actor: str
    run: Callable[[], None]


def first(_: int) -> int:
    return 0


class Simulation:
    """``step`` until ``finished``. ``crash`` loses everything but the store, as SIGKILL of every process would."""

    def __init__(
        self,
        definition: JobDefinition,
        store: JobStore,
        clock: ManualClock,
        choose: Choose = first,
        buffer_rows: int = 4,
    ) -> None:
        self._definition = definition
        self.store = store
        self._clock = clock
        self._choose = choose
        self._buffer_rows = buffer_rows
        self.history = CheckpointHistory(epoch_offset=clock.wall() - clock.monotonic())
        self.answers: dict[RequestId, CheckpointInfo | str] = {}
        self.printed_lines: list[str] = []
        self.logged: list[str] = []
        self.attempts = 0
        self.start_attempt(StartFresh("the simulation begins"))

    # --- AttemptEvents ------------------------------------------------------------------------------------------------

    def checkpoint_ended(self, info: CheckpointInfo) -> None:
        """Stands in ``history``."""

    def request_ended(self, request: RequestId, outcome: CheckpointInfo | str) -> None:
        self.answers[request] = outcome

    def printed(self, lines: Sequence[str]) -> None:
        self.printed_lines.extend(lines)

    def log(self, line: str) -> None:
        self.logged.append(line)

    # --- attempts -----------------------------------------------------------------------------------------------------

    def start_attempt(self, start: StartFresh | Resume | None = None) -> None:
        self.attempts += 1
        record = self.store.acquire_attempt(start)
        self.store.delete_leftovers()
        plan = self._definition.plan
        self._exchange = Exchange([len(level) for level in plan.levels], self._buffer_rows)
        self._to_driver: dict[SubtaskId, deque[ToDriver]] = {subtask: deque() for subtask in plan.subtasks}
        self._to_subtask: dict[SubtaskId, deque[ToSubtask]] = {subtask: deque() for subtask in plan.subtasks}
        self._io = DriverQueue()
        self.driver = AttemptDriver(
            self._definition,
            self.store,
            record.attempt,
            self.history,
            self._deployment(fresh=isinstance(start, StartFresh)),
            send=lambda subtask, message: self._to_subtask[subtask].append(message),
            io=SimulatedIO(self._io),
            clock=self._clock,
            events=self,
        )
        self.subtasks: dict[SubtaskId, Subtask] = {}
        self._backgrounds: dict[SubtaskId, BackgroundQueues] = {}
        self._loops: list[LoopActor] = []
        self._readers: list[ReaderActor] = []
        self._relays: list[RelayActor] = []
        self._attempt, self._incarnation = record.attempt, record.incarnation
        for level, places in enumerate(plan.levels):
            for partition, place in enumerate(places):
                match place:
                    case RelayPlace():
                        relay = Relay(plan.relay_hops(level, place))
                        self._relays.append(RelayActor(f"{level}/{partition}", relay, self._exchange, level, partition))
                    case SubtaskPlace(subtask):
                        self._deploy(subtask, level, partition)

    def _deployment(self, *, fresh: bool) -> Deployment:
        checkpointing = self._definition.checkpointing
        reserves = checkpointing is not None and checkpointing.mode is CheckpointMode.AT_MOST_ONCE
        restored = None if fresh or reserves or checkpointing is None else self._begin_restore()
        if reserves:
            deployment = deploy_reserved(self._definition, self.store.reservations, allow_non_restored_state=False)
        elif restored is None:
            deployment = deploy_fresh(self._definition)
        else:
            storage, checkpoint, resumed = restored
            deployment = deploy_restored(
                self._definition, storage, checkpoint, allow_non_restored_state=False, resumed=resumed
            )
        deployment.visible_up_to = self.store.visible_up_to(None if restored is None else restored.checkpoint)
        return deployment

    def _begin_restore(self) -> Restored | None:
        """None: no checkpoint was completed yet. A job that has lost its own fails, as on Spark."""
        found = self.store.find_restorable(all_sinks_idempotent=False, on_damaged="fail")
        if isinstance(found, RefuseRestore):
            raise JobFailed(found.report)
        return self.store.begin_restore(found.to) if isinstance(found, RestoreLatest | FallBack) else None

    def _deploy(self, subtask: SubtaskId, level: int, partition: int) -> None:
        """Build one subtask and let it report in; its state arrives as on Spark, through Deploy."""
        definition, plan = self._definition, self._definition.plan
        self.driver.on_message(subtask, Hello("simulation", 0, 0.0))
        deploy = self._to_subtask[subtask].popleft()
        vertex = cloudpickle.loads(cloudpickle.dumps(plan.vertex(subtask.vertex)))
        setup = definition.setup_of(subtask, self._attempt, self._incarnation, vertex)
        background = BackgroundQueues()
        kind = SourceSubtask if vertex.is_source else OperatorSubtask
        built = kind(
            setup,
            state_from(deploy),  # type: ignore[arg-type]  # the first message is always Deploy
            send=self._to_driver[subtask].append,
            background=background,
            writer=self._writer(subtask),
            clock=self._clock,
        )
        self.subtasks[subtask] = built
        self._backgrounds[subtask] = background
        self._begin(subtask, level, partition)

    def _begin(self, subtask: SubtaskId, level: int, partition: int) -> None:
        """Open, and only then read: what was restored stands before whatever comes."""
        self._open(subtask, level, partition)
        self._read(subtask, level, partition)

    def _open(self, subtask: SubtaskId, level: int, partition: int) -> None:
        built = self.subtasks[subtask]
        built.open(_Port(self._to_driver[subtask]))
        self._loops.append(LoopActor(str(subtask), built, self._exchange, level, partition, self._clock))

    def _read(self, subtask: SubtaskId, level: int, partition: int) -> None:
        built = self.subtasks[subtask]
        if isinstance(built, OperatorSubtask):
            self._readers.append(ReaderActor(str(subtask), self._exchange.inlet(level, partition), built.intake))

    def _writer(self, subtask: SubtaskId) -> TableWriter:
        """Stores tables as a worker would."""
        storage, files = self.store.storage, self.store.layout.files_of(subtask, self._attempt)
        if isinstance(storage, MemoryStorage):
            return StoresTables(None, files, limit=storage.max_state)
        return StoresTables(storage, files)

    def crash(self) -> None:
        """Every process dies at once; the next attempt begins from the store."""
        self.driver.end("crash")
        self.close()
        self.start_attempt()

    def close(self) -> None:
        """What the end of its process takes from a subtask: memory and the unlinked files of held rows."""
        for subtask in self.subtasks.values():
            if isinstance(subtask, OperatorSubtask):
                subtask.intake.discard()

    # --- steps --------------------------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        return self.driver.finishing and all(loop.ended for loop in self._loops)

    def step(self) -> bool:
        """One thing happens; False: nothing can happen until time passes or somebody asks for something."""
        actions = self.actions()
        if not actions:
            return False
        self.perform(actions[self._choose(len(actions))])
        return True

    def perform(self, action: Action) -> None:
        """Let one of ``actions()`` happen."""
        action.run()
        if self.driver.failure is not None:
            raise CutwaterError(f"The attempt failed: {self.driver.failure.message}")

    def advance_to_next_timer(self) -> bool:
        """Move the clock to the next moment at which something is due; False: nothing is."""
        times = [loop.resting_until for loop in self._loops] + [self.driver.next_tick]
        due = [moment for moment in times if moment is not None]
        if not due:
            return False
        self._clock.advance(max(0.0, min(due) - self._clock.monotonic()) + 1e-6)
        return True

    def run_until_idle(self, most_steps: int = 1_000_000) -> None:
        for _ in range(most_steps):
            if not self.step():
                return
        raise CutwaterError(f"The simulation did not come to rest within {most_steps} steps.")

    def actions(self) -> list[Action]:
        """All that could happen next without time passing. A reader that holds a row has tried again to place it."""
        actions: list[Action] = []
        for reader in self._readers:
            if reader.holds_row:
                if reader.offer_in_hand():
                    # Placing it is not a choice: the reader thread tries again as soon as there is room.
                    actions.append(Action("reader", reader.name, _nothing))
            else:
                actions.extend(
                    Action("reader", f"{reader.name}<-{sender}", _take(reader, sender)) for sender in reader.senders()
                )
        actions.extend(Action("loop", loop.name, loop.step) for loop in self._loops if loop.ready())
        actions.extend(Action("relay", relay.name, relay.step) for relay in self._relays if relay.ready())
        for subtask, background in self._backgrounds.items():
            if background.snapshots.ready:
                actions.append(Action("snapshot", str(subtask), background.snapshots.step))
            if background.commits.ready:
                actions.append(Action("commit", str(subtask), background.commits.step))
        for subtask, sent in self._to_driver.items():
            if sent:
                actions.append(Action("to driver", str(subtask), self._deliver_up(subtask)))
        for subtask, sent_down in self._to_subtask.items():
            if sent_down:
                actions.append(Action("to subtask", str(subtask), self._deliver_down(subtask)))
        if self._io.ready:
            actions.append(Action("storage", "driver", self._io.step))
        if self.driver.next_tick is not None and self._clock.monotonic() >= self.driver.next_tick:
            actions.append(Action("tick", "driver", self.driver.tick))
        return actions

    def _deliver_up(self, subtask: SubtaskId) -> Callable[[], None]:
        return lambda: self.driver.on_message(subtask, self._to_driver[subtask].popleft())

    def _deliver_down(self, subtask: SubtaskId) -> Callable[[], None]:
        return lambda: self.subtasks[subtask].on_message(self._to_subtask[subtask].popleft())


def _nothing() -> None:
    """A step in which only the reader moved."""


def _take(reader: ReaderActor, sender: int) -> Callable[[], None]:
    return lambda: reader.take_from(sender)


class _Port:
    """The operators' way to the driver."""

    def __init__(self, queue: "deque[ToDriver]") -> None:
        self._queue = queue

    def collected(self, uid: str, checkpoint: CheckpointId, writer: int, rows: bytes) -> None:
        self._queue.append(CollectedRows(uid, checkpoint, writer, (rows,)))

    def printed(self, lines: Sequence[str]) -> None:
        self._queue.append(PrintedLines(tuple(lines)))
