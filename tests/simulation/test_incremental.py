"""Incremental checkpoints under random schedules: none misses a file, none adds up to something else, nothing stays for ever."""

import os
import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cutwater as cw
from cutwater.checkpoint.bases import AcknowledgedBases
from cutwater.checkpoint.completed import CompletedCheckpoint
from cutwater.checkpoint.events import RequestId, SavepointRequested
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.publication import Publication, UnknownWhetherStored
from cutwater.checkpoint.start import Resume, StartFresh
from cutwater.checkpoint.statistics import CheckpointInfo, CheckpointKind, CheckpointStatus
from cutwater.checkpoint.stored_tables import FETCHED_FOLDER
from cutwater.errors import DamagedCheckpoint, StorageError
from cutwater.flow.ids import CheckpointId
from cutwater.flow.transport import Step
from cutwater.job.attempt import AttemptDriver
from cutwater.state.stored import Form
from cutwater.subtask.cut_mark import CutMark
from cutwater.subtask.limits import FlowLimits
from cutwater.subtask.subtask import Subtask
from cutwater.testing.clock import ManualClock
from cutwater.testing.run import _rows as decoded
from cutwater.testing.simulation import Action, Simulation
from tests.rich_pipeline import BY_SUBTASK, difference, lines, pipeline, told, truth
from tests.simulation.test_schedules import ANY_TOPOLOGY, COLLECTING, any_setting
from tests.simulation.world import Setting, World, judge_every_cut, run_and_judge, run_to_the_end

INCREMENTAL: dict[str, st.SearchStrategy[object]] = {"incremental": st.just(True), "retain": st.integers(1, 3)}


def lengths(checkpoint: CompletedCheckpoint) -> set[int]:
    """Of how many files the tables of a checkpoint are."""
    return {
        len(table.files)
        for record in checkpoint.subtasks
        for operator in record.snapshot.operators
        for table in operator.tables
        if table.is_shared
    }


def check_nothing_is_left_over(world: World) -> None:
    store = world.store
    store.acquire_attempt()
    store.delete_leftovers()
    referenced = {name for checkpoint in store.completed() for name in checkpoint.shared_files()}
    assert set(store.storage.list(store.layout.shared)) == referenced


@settings(max_examples=40)
@given(any_setting(ANY_TOPOLOGY, **INCREMENTAL))
def test_nothing_is_lost_or_double_and_no_file_is_missing(setting: Setting) -> None:
    check_nothing_is_left_over(run_and_judge(setting))


@settings(max_examples=20)
@given(any_setting(COLLECTING, crashes=st.integers(0, 2), timeout=st.just("10s"), **INCREMENTAL))
def test_every_completed_checkpoint_is_a_consistent_cut(setting: Setting) -> None:
    judge_every_cut(run_and_judge(setting))


BUSY = Setting(
    "two sources",
    seed=0,
    rows=40,
    incremental=True,
    retain=1,
    max_concurrent=2,
    declines=0.02,
    crashes=1,
    timeout="10s",
    interval="5ms",
    triggers=0.1,
)


def test_the_schedules_reach_what_they_are_meant_to_reach() -> None:
    """Chains of changes, bases that are not the checkpoint before, and files that wait for a subtask that has not heard."""
    seen: set[int] = set()
    skipped = waited = False
    for seed in range(12):
        world = Watched(replace(BUSY, seed=seed))
        finish(world)
        seen |= world.lengths
        skipped |= world.skipped
        waited |= world.waited
    assert max(seen) > 3
    assert skipped
    assert waited


class Watched(World):
    lengths: set[int]
    skipped = False
    waited = False

    def checkpoint_ended(self, info: object) -> None:
        super().checkpoint_ended(info)  # type: ignore[arg-type]
        self.lengths = getattr(self, "lengths", set())
        for checkpoint in self.store.completed():
            self.lengths |= lengths(checkpoint)
        self.waited |= bool(self.store._shared._retired)
        latest = self.history.latest_completed
        bases = self.driver._bases
        self.skipped |= bases is not None and latest is not None and 0 < bases.oldest < latest - 1


def finish(world: World) -> None:
    run_to_the_end(world).judge()


def expect_missing_files() -> None:
    with pytest.raises((DamagedCheckpoint, StorageError), match=r"is missing|came without its content"):
        for seed in range(30):
            finish(World(replace(BUSY, seed=seed)))


def test_without_waiting_for_the_bases_of_all_subtasks_files_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AcknowledgedBases, "oldest", property(lambda self: CheckpointId(1 << 40)))
    expect_missing_files()


def test_building_on_a_checkpoint_that_is_not_confirmed_misses_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 38."""
    cut = Subtask._cut

    def and_confirm(self: Subtask, mark: CutMark) -> Iterator[Step]:
        yield from cut(self, mark)
        self.mailbox.put_fate(mark.checkpoint, completed=True)

    monkeypatch.setattr(Subtask, "_cut", and_confirm)
    expect_missing_files()


class AnswersLate(World):
    """Of some publications it is unknown whether they are stored, and they are: later."""

    def __init__(self, setting: Setting) -> None:
        self._late: list[CompletedCheckpoint] = []
        self.landed = 0
        super().__init__(setting)
        self._publish = self.store.publish
        self.store.publish = self._publish_or_not  # type: ignore[method-assign]

    def _publish_or_not(self, checkpoint: CompletedCheckpoint, savepoint: object = None) -> Publication:
        if self.random.random() < 0.2:
            self._late.append(checkpoint)
            return UnknownWhetherStored("the storage did not answer")
        return self._publish(checkpoint)

    def perform(self, action: Action) -> None:
        if self._late and self.random.random() < 0.005:
            self._publish(self._late.pop(0))
            self.landed += 1
        super().perform(action)

    def crash(self) -> None:
        self._late.clear()
        super().crash()


def test_what_a_checkpoint_of_unknown_fate_references_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    landed = 0
    for seed in range(15):
        world = AnswersLate(replace(BUSY, seed=seed))
        finish(world)
        landed += world.landed
    assert landed > 10
    monkeypatch.setattr(
        AttemptDriver, "_storing", property(lambda self: set(), lambda self, value: None), raising=False
    )
    with pytest.raises((DamagedCheckpoint, StorageError), match=r"is missing|came without its content"):
        for seed in range(100):
            finish(AnswersLate(replace(BUSY, seed=seed)))


def test_a_savepoint_is_complete_in_itself() -> None:
    world = World(replace(BUSY, crashes=0, declines=0.0, retain=3))
    while not any(max(lengths(each), default=0) > 1 for each in world.store.completed()):
        if not world.step():
            world.advance_to_next_timer()
        world.time.advance(0.0005)
    world.driver.handle(SavepointRequested(RequestId(1), "anywhere"))
    while RequestId(1) not in world.answers:
        if not world.step():
            world.advance_to_next_timer()
    info = world.answers[RequestId(1)]
    assert isinstance(info, CheckpointInfo)
    assert info.id is not None
    taken = world.store._folders.metadata(info.id)
    assert taken.kind is CheckpointKind.SAVEPOINT
    tables = [table for record in taken.subtasks for each in record.snapshot.operators for table in each.tables]
    assert {table.form for table in tables} == {Form.ROWS}
    assert not taken.shared_files()
    run_to_the_end(world).judge()


# --- from one life to the next, however wide and on whatever backend -------------------------------------------------------

COUNT = 240
INCREMENTAL_MEMORY = cw.Memory(incremental=True)
INCREMENTAL_ROCKSDB = cw.RocksDB(incremental=True, cache="20kB")


class Life(Simulation):
    """One process after another works at the same job; each takes up what the store holds."""

    def __init__(self, store: JobStore, backend: cw.StateBackend, parallelism: int, chance: random.Random) -> None:
        storage = cw.memory_storage("1GB")
        checkpointing = cw.Checkpointing("10ms", storage=storage, retain=1, tolerable_failures=1_000_000)
        env = cw.Environment(parallelism=parallelism, checkpointing=checkpointing, state_backend=backend)
        pipeline(env, COUNT)
        self.definition = replace(
            env.define("job", parallelism), limits=FlowLimits(max_slice_rows=3, payload_bytes=200)
        )
        self.time = ManualClock()
        super().__init__(self.definition, store, self.time, chance.randrange)

    def start_attempt(self, start: StartFresh | Resume | None = None) -> None:
        super().start_attempt(start if self.store.record() is None else None)

    def live(self, checkpoints: int) -> None:
        """Until all is done, or so many checkpoints completed."""
        while not self.finished and self.history.counts[CheckpointStatus.COMPLETED] < checkpoints:
            if not self.step():
                self.advance_to_next_timer()
            self.time.advance(0.0001)

    def outputs(self) -> dict[str, list[Any]]:
        return {name: decoded(self.store.collected.read(each.uid)) for name, each in self.definition.collected.items()}


@pytest.mark.parametrize(("backend", "parallelism"), [(cw.Memory(), 3), (cw.Memory(), 2), (INCREMENTAL_MEMORY, 2)])
def test_files_that_a_state_was_restored_from_do_not_stay_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: cw.StateBackend, parallelism: int
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    store = JobStore(MemoryStorage(1 << 30), "job")
    chance = random.Random(11)
    first = Life(store, INCREMENTAL_ROCKSDB, 2, chance)
    first.live(1)
    first.driver.end("the process dies")
    first.close()
    second = Life(store, backend, parallelism, chance)
    second.live(1)
    [fetched] = tmp_path.glob(f"{FETCHED_FOLDER}*")
    assert os.listdir(fetched) == []
    second.close()


@pytest.mark.parametrize(
    "lives",
    [
        [(INCREMENTAL_MEMORY, 2), (INCREMENTAL_MEMORY, 2), (INCREMENTAL_MEMORY, 3), (INCREMENTAL_MEMORY, 1)],
        [(INCREMENTAL_MEMORY, 2), (cw.Memory(), 2), (INCREMENTAL_MEMORY, 2), (INCREMENTAL_MEMORY, 2)],
        [(INCREMENTAL_MEMORY, 1), (cw.RocksDB(), 2), (INCREMENTAL_MEMORY, 2), (cw.Memory(), 1)],
        [(INCREMENTAL_ROCKSDB, 2), (INCREMENTAL_ROCKSDB, 2), (INCREMENTAL_ROCKSDB, 3), (INCREMENTAL_ROCKSDB, 1)],
        [(INCREMENTAL_ROCKSDB, 1), (cw.Memory(), 2), (INCREMENTAL_ROCKSDB, 2), (INCREMENTAL_MEMORY, 2)],
    ],
    ids=[
        "wider and narrower",
        "with and without increments",
        "on RocksDB and back",
        "files of RocksDB, wider and narrower",
        "files of RocksDB, on Memory and back",
    ],
)
def test_a_job_goes_on_from_increments(lives: list[tuple[cw.StateBackend, int]]) -> None:
    chance = random.Random(11)
    store = JobStore(MemoryStorage(1 << 30), "job")
    chained = 0
    for number, (backend, parallelism) in enumerate(lives, 1):
        life = Life(store, backend, parallelism, chance)
        life.live(3 if number < len(lives) else 1_000_000)
        chained = max(chained, *(max(lengths(each), default=0) for each in store.completed()))
        if number < len(lives):
            assert not life.finished
            life.driver.end("the process dies")
        life.close()
        for subtask in life.subtasks.values():
            subtask.close()
        store = JobStore(store.storage, "job")
    assert chained > 2
    outputs = life.outputs()
    wrong = difference(told(outputs), truth(COUNT))
    wrong.pop(BY_SUBTASK, None)  # it depends on how many there are
    assert wrong == {}
    numbers = [row.number for row in outputs["numbered"]]
    widths = [parallelism for _, parallelism in lives]
    if widths[-1] == 1:
        assert max(numbers) == COUNT, "the one subtask goes on from what all of them counted"
    else:
        assert 1 <= lines(numbers) <= max(widths)
