"""One job under an adversary: any order of steps, crashes, delays, repeated messages, snapshots that cannot be stored."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import cutwater as cw
from cutwater.checkpoint.events import ManualTriggerRequested, RequestId
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.start import StartFresh
from cutwater.checkpoint.statistics import CheckpointInfo, CheckpointStatus
from cutwater.checkpoint.verification import verify
from cutwater.control.messages import AbortCheckpoint, CheckpointCompleted, CutNow, ToSubtask, TriggerCheckpoint
from cutwater.flow.envelope import RowKind
from cutwater.flow.ids import CheckpointId, SubtaskId
from cutwater.flow.transport import Step
from cutwater.job.definition import JobDefinition
from cutwater.state.frozen import FrozenTable
from cutwater.state.stored import StoredTable
from cutwater.subtask.limits import FlowLimits
from cutwater.subtask.operator_subtask import OperatorSubtask
from cutwater.subtask.pace import Pace
from cutwater.subtask.setup import TableWriter
from cutwater.testing.clock import ManualClock
from cutwater.testing.run import _rows as decoded
from cutwater.testing.simulation import Action, Simulation
from tests.simulation.outside import OutsideSink, OutsideSystem
from tests.simulation.timed_topologies import TIMED
from tests.simulation.topologies import TOPOLOGIES, Numbers, Topology

STORMY_STEPS = 4_000
MOST_STEPS = 15_000
REPEATABLE = (TriggerCheckpoint, CutNow, AbortCheckpoint, CheckpointCompleted)
STORAGE_LIMIT = 1 << 30


class Stuck(AssertionError):
    """Something waits for what cannot happen any more."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything that decides a run: the same setting, the same run."""

    topology: str
    seed: int
    parallelism: int = 2
    splits: int | None = None
    """Of each source; None: as many as subtasks."""
    rows: int = 6
    buffer_rows: int = 2
    mode: str = "exactly_once"
    unaligned: bool = False
    aligned_timeout: str | None = None
    max_concurrent: int = 1
    crashes: int = 2
    declines: float = 0.0
    hesitant: bool = False
    repeats: bool = True
    preempted: bool = False
    """Rows and messages also come while a loop is in the middle of its work, as other threads of a subtask bring them."""
    late_open: bool = False
    """Subtasks open when they get to it, while others that did already send."""
    lost: float = 0.0
    """How many of the driver's calls for a cut never come: whoever missed one is told by the barriers."""
    short: bool = False
    """The last of the sources has a single record in each split, and ends long before the others."""
    triggers: float = 0.05
    limits: FlowLimits = field(
        default_factory=lambda: FlowLimits(
            inbox_bytes=600,
            hold_bytes=600,
            hold_memory_bytes=300,
            in_flight_memory_bytes=300,
            payload_bytes=64,
            linger_seconds=0.0,
            max_slice_rows=2,
        )
    )
    timeout: str = "50ms"
    interval: str = "20ms"
    incremental: bool = False
    backend: cw.StateBackend | None = None
    """Where state is kept; None: in memory."""
    retain: int = 2
    tolerable_failures: int = 1_000_000

    @property
    def shape(self) -> Topology:
        return {**TOPOLOGIES, **TIMED}[self.topology]


class FlakyWriter:
    """Stores a snapshot's table, or fails as a storage does."""

    def __init__(self, writer: TableWriter, fails: Callable[[], bool]) -> None:
        self._writer = writer
        self._fails = fails

    def write(
        self, checkpoint: CheckpointId, uid: str, table: FrozenTable, base: StoredTable | None
    ) -> tuple[StoredTable, tuple[bytes, ...]]:
        if self._fails():
            raise OSError("the storage is full")
        return self._writer.write(checkpoint, uid, table, base)


class World(Simulation):
    """``resume``: a store to go on from, as after the death of every process; None begins the job."""

    def __init__(self, setting: Setting, resume: MemoryStorage | None = None, seed: int | None = None) -> None:
        self.setting = setting
        self.random = random.Random(setting.seed if seed is None else seed)
        self.sources = [
            Numbers(name, setting.splits or setting.parallelism, setting.rows, hesitant=setting.hesitant)
            for name in "ab"[: setting.shape.sources]
        ]
        if setting.short:
            self.sources[-1].rows = 1
        self.definition = _define(setting, self.sources)
        systems = [sink.system for sink in self.definition.sinks.values() if isinstance(sink, OutsideSink)]
        self.outside = systems[0] if systems else OutsideSystem()
        self.moments: list[MemoryStorage] = []
        """The store as it was when each checkpoint completed."""
        self.delivered: list[tuple[SubtaskId, ToSubtask]] = []
        self.ended: list[CheckpointInfo] = []
        self.since_completed = 0
        """Steps since the last checkpoint completed: what happens soon after that is delicate."""
        self.calm = False
        """The adversary has had its way: the storage takes what it is given, and time passes only when all is at rest."""
        self._resume = resume is not None
        self._pace: dict[tuple[str, str], float] = {}
        self.time = ManualClock()
        store = JobStore(resume if resume is not None else MemoryStorage(STORAGE_LIMIT), "simulated")
        super().__init__(self.definition, store, self.time, self.random.randrange, setting.buffer_rows)

    # --- what differs from a quiet simulation -------------------------------------------------------------------------

    def start_attempt(self, start: StartFresh | None = None) -> None:
        self.delivered.clear()
        self.missed: set[CheckpointId] = set()
        """Of these, calls for a cut were lost."""
        self._unopened: list[Action] = []
        with self.outside.restoring():
            super().start_attempt(None if self._resume else start)

    def _deploy(self, subtask: SubtaskId, level: int, partition: int) -> None:
        super()._deploy(subtask, level, partition)
        if self.setting.preempted:
            running = self.subtasks[subtask]
            work, between_steps = running._slice, running._cut_between_steps

            def sliced(pace: Pace, rows: int, process: Callable[[], None]) -> int:
                done = work(pace, rows, process)
                self._let_others_run(str(subtask))
                return done

            def stepped() -> Iterator[Step]:
                self._let_others_run(str(subtask))
                return between_steps()

            running._slice = sliced  # type: ignore[method-assign]
            running._cut_between_steps = stepped  # type: ignore[method-assign]

    def _let_others_run(self, subtask: str) -> None:
        """The threads that bring it rows and messages."""
        for _ in range(self.random.choice((0, 0, 0, 2, 6))):
            others = [each for each in self.actions() if each.kind in ("reader", "to subtask")]
            own = [each for each in others if each.actor.partition("<-")[0] == subtask]
            if own:
                self.random.choice(own).run()

    def _begin(self, subtask: SubtaskId, level: int, partition: int) -> None:
        if self.setting.late_open:
            begin = super()._begin
            self._unopened.append(Action("open", str(subtask), lambda: begin(subtask, level, partition)))
        else:
            super()._begin(subtask, level, partition)

    def actions(self) -> list[Action]:
        return [*super().actions(), *self._unopened]

    def _writer(self, subtask: SubtaskId) -> TableWriter:
        return FlakyWriter(
            super()._writer(subtask), lambda: not self.calm and self.random.random() < self.setting.declines
        )

    def checkpoint_ended(self, info: CheckpointInfo) -> None:
        self.ended.append(info)
        if info.status is CheckpointStatus.COMPLETED:
            self.moments.append(copy_of(self.store.storage))
            self.outside.completed.append(info.id)
            self.since_completed = 0

    def _deliver_down(self, subtask: SubtaskId) -> Callable[[], None]:
        def deliver() -> None:
            message = self._to_subtask[subtask].popleft()
            if self._is_lost(subtask, message):
                assert isinstance(message, CutNow | TriggerCheckpoint)
                self.missed.add(message.checkpoint)
                return
            if isinstance(message, REPEATABLE):
                self.delivered.append((subtask, message))
            self.tell(subtask, message)

        return deliver

    def _is_lost(self, subtask: SubtaskId, message: ToSubtask) -> bool:
        """Sources, and subtasks whose input ended, hear of a checkpoint from nobody else: to them it comes in the end."""
        running = self.subtasks[subtask]
        told_by_barriers = isinstance(running, OperatorSubtask) and not running._ended
        calls = isinstance(message, CutNow) or (isinstance(message, TriggerCheckpoint) and message.unaligned)
        if not (self.setting.lost and calls and told_by_barriers):
            return False
        return self.random.random() < self.setting.lost

    def tell(self, subtask: SubtaskId, message: ToSubtask) -> None:
        running = self.subtasks[subtask]
        running.on_message(message)
        if isinstance(message, AbortCheckpoint) and isinstance(running, OperatorSubtask):
            aligning = running.intake._barriers.aligning
            assert aligning != message.checkpoint, f"{subtask} still aligns checkpoint {aligning}, which was aborted"

    def step(self) -> bool:
        actions = self.actions()
        if not actions:
            return False
        self.perform(self.pick(actions))
        self.since_completed += 1
        self._check_ends()
        return True

    def perform(self, action: Action) -> None:
        if action in self._unopened:
            self._unopened.remove(action)
        super().perform(action)
        if action.kind == "storage":
            for checkpoint in self.store.completed():
                verify(self.store.storage, checkpoint)

    def _check_ends(self) -> None:
        """Rules 13 and 20: END is the last that counts; nothing of its channel is left behind it."""
        if self.setting.mode != "exactly_once":
            return  # a subtask restored as finished drops what is sent to it again
        for subtask, running in self.subtasks.items():
            if isinstance(running, OperatorSubtask) and running._ended:
                left = [row for row in running.intake._inbox.rows() if row.kind is RowKind.DATA]
                assert not left, f"{subtask} ended with {len(left)} rows in its inbox"

    def pick(self, actions: Sequence[Action]) -> Action:
        """Every actor and queue has a pace of its own, which changes from time to time: somebody is always slow."""
        if self.random.random() < 0.01:
            self._pace.clear()
        weights = []
        for action in actions:
            who = (action.kind, action.actor)
            if who not in self._pace:
                self._pace[who] = self.random.choice((0.003, 0.1, 1.0, 1.0, 5.0))
            weights.append(self._pace[who])
        return self.random.choices(actions, weights)[0]

    # --- what is looked at --------------------------------------------------------------------------------------------

    @property
    def pending(self) -> list[CheckpointId]:
        return [pending.id for pending in self.driver._coordinator.pending]

    def check_rest(self) -> None:
        """Nothing can happen without time: then no checkpoint may be on its way, and nothing may be held or paused."""
        if self._goes_on_soon():
            return
        if self.pending:
            raise Stuck(f"checkpoints {self.pending} wait for what cannot happen")
        for subtask, running in self.subtasks.items():
            if isinstance(running, OperatorSubtask) and running.intake._held:
                raise Stuck(f"{subtask} holds {sorted(running.intake._held)}, and no checkpoint is on its way")
            if running.mailbox.paused:
                raise Stuck(f"{subtask} is paused for ever on {running.mailbox.paused}")

    def _goes_on_soon(self) -> bool:
        """Somebody stands still behind its cut, for a sender that missed the call: if that one is paused as well and its inbox
        is full, no barrier reaches it until the first has stood still for long enough. Real calls are sent again before."""
        awaited = {running._awaits for running in self.subtasks.values() if isinstance(running, OperatorSubtask)}
        return not awaited.isdisjoint(self.missed.intersection(self.pending))

    def outputs(self) -> dict[str, list[Any]]:
        found = {
            name: decoded(self.store.collected.read(output.uid)) for name, output in self.definition.collected.items()
        }
        for uid, sink in self.definition.sinks.items():
            if isinstance(sink, OutsideSink):
                found[uid] = list(sink.system.visible)
        return found

    def judge(self) -> None:
        """The output keeps the promise of the mode."""
        outputs = self.outputs()
        for name, answer in self.setting.shape.answers(self.setting.parallelism).items():
            getattr(answer, self.setting.mode)(outputs[name], self.sources)


def _define(setting: Setting, sources: Sequence[Numbers]) -> JobDefinition:
    checkpointing = cw.Checkpointing(
        setting.interval,
        storage=cw.memory_storage("1GB"),
        mode=setting.mode,
        timeout=setting.timeout,
        max_concurrent=setting.max_concurrent,
        tolerable_failures=setting.tolerable_failures,
        retain=setting.retain,
        unaligned=setting.unaligned,
        aligned_timeout=setting.aligned_timeout,
    )
    env = cw.Environment(
        parallelism=setting.parallelism,
        checkpointing=checkpointing,
        state_backend=setting.backend or cw.Memory(incremental=setting.incremental),
    )
    setting.shape.build(*(env.read(source, uid=source.name) for source in sources))
    return replace(env.define("simulated", setting.parallelism), limits=setting.limits)


def copy_of(storage: Any) -> MemoryStorage:
    copied = MemoryStorage(STORAGE_LIMIT)
    for name in storage.list():
        copied.put(name, storage.read(name))
    return copied


def run_to_the_end(world: World, until: Callable[[], bool] = lambda: False) -> World:
    """The adversary has its way for a while, then lets everybody finish: a run that still does not end says something.
    ``until``: stop earlier, as soon as that is so."""
    setting, rng = world.setting, world.random
    crashes, requests = setting.crashes, 0
    for step in range(MOST_STEPS):
        if until():
            return world
        world.calm = step >= STORMY_STEPS
        if crashes and rng.random() < (0.1 if 0 < world.since_completed < 15 else 0.005):
            crashes -= 1
            world.crash()
        event = 1.0 if world.calm else rng.random()
        if event < setting.triggers:
            requests += 1
            world.driver.handle(ManualTriggerRequested(RequestId(requests)))
        elif event < 0.08 + setting.triggers:
            world.time.advance(rng.choice((0.0005, 0.005, 0.03)))
        elif event < 0.11 + setting.triggers and setting.repeats and world.delivered:
            subtask, message = rng.choice(world.delivered)
            world.tell(subtask, message)
        elif not world.step():
            world.check_rest()
            if world.finished:
                world.close()
                return world
            if not world.advance_to_next_timer():
                raise Stuck("nothing moves, nothing is due, and the job has not finished")
    raise Stuck(f"the job did not finish within {MOST_STEPS} steps")


def run_and_judge(setting: Setting) -> World:
    """Safety and liveness of one run, and of every run that goes on from one of its checkpoints."""
    world = run_to_the_end(World(setting))
    world.judge()
    return world


def judge_every_cut(
    world: World, parallelism: int | None = None, only: Callable[[MemoryStorage], bool] = lambda moment: True
) -> int:
    """Each checkpoint that completed is a consistent cut: a job that goes on from it ends with the same answer. So does one
    of another ``parallelism``. ``only``: of these; how many they were comes back."""
    setting = world.setting
    quiet = replace(
        setting,
        crashes=0,
        declines=0.0,
        hesitant=False,
        splits=setting.splits or setting.parallelism,
        parallelism=parallelism or setting.parallelism,
    )
    moments = [moment for moment in world.moments if only(moment)]
    for number, moment in enumerate(moments):
        # What resumes writes to its store, and others may want to begin from the same.
        run_to_the_end(type(world)(quiet, copy_of(moment), seed=world.setting.seed + number)).judge()
    return len(moments)
