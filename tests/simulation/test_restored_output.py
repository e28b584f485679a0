"""What a failure leaves of the output: each row shown once, listed where readers look, and never written a second time."""

import random
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import cutwater as cw
from cutwater.checkpoint.damage import RefuseRestore
from cutwater.checkpoint.events import ManualTriggerRequested, RequestId
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.testing.clock import ManualClock
from cutwater.testing.simulation import Simulation

MOST_STEPS = 100_000


class Scene:
    """A job that counts numbers by key in the simulation, with its files under ``folder``."""

    def __init__(self, folder: Path, write: Callable[[cw.Stream], object], records: int = 40_000) -> None:
        self.checkpoints = folder / "checkpoints" / "job"
        checkpointing = cw.Checkpointing("1h", storage=f"file:{folder / 'checkpoints'}", retain=5)
        env = cw.Environment(parallelism=1, checkpointing=checkpointing)
        numbers = env.read(cw.sequence(records, rate=1000), uid="numbers").with_columns(k=pl.col("value") % 3)
        write(numbers.key_by("k").agg(n=cw.count()).uid("counts"))
        self.clock = ManualClock()
        self.store = JobStore(FileStorage(str(folder / "checkpoints")), "job")
        self.simulation = Simulation(env.define("job", 1), self.store, self.clock, random.Random(1).randrange)
        self._requests = 0

    def step_until(self, happened: Callable[[], bool]) -> None:
        for _ in range(MOST_STEPS):
            if happened():
                return
            self.clock.advance(0.005)
            self.simulation.step()
        raise AssertionError("it never came to that")

    def trigger(self) -> None:
        seen = self.records_in()
        self.step_until(lambda: self.records_in() > seen + 50)
        self._requests += 1
        self.simulation.driver.handle(ManualTriggerRequested(RequestId(self._requests)))

    def records_in(self) -> int:
        return sum(subtask.records_in for subtask in self.simulation.subtasks.values())

    def has_metadata(self, checkpoint: int) -> bool:
        return (self.checkpoints / f"chk-{checkpoint}" / "metadata.json").exists()

    def damage(self, checkpoint: int) -> None:
        (self.checkpoints / f"chk-{checkpoint}" / "metadata.json").write_bytes(b"damaged")


def test_output_that_a_restart_committed_is_never_fallen_behind(tmp_path: Path) -> None:
    scene = Scene(tmp_path, lambda counts: counts.write(cw.parquet_sink(tmp_path / "out"), uid="out"))
    scene.trigger()
    scene.step_until(lambda: scene.has_metadata(1))
    scene.trigger()
    scene.step_until(lambda: scene.has_metadata(2))
    scene.simulation.crash()
    scene.damage(2)
    again = JobStore(scene.store.storage, "job")
    found = again.find_restorable(all_sinks_idempotent=False, on_damaged="fail")
    assert isinstance(found, RefuseRestore), found


def test_collected_rows_that_the_driver_was_shown_are_never_fallen_behind(tmp_path: Path) -> None:
    scene = Scene(tmp_path, lambda counts: counts.collect("counts"))
    scene.trigger()
    scene.step_until(lambda: scene.has_metadata(1))
    scene.trigger()
    scene.step_until(lambda: len(list((scene.checkpoints / "collected").rglob("*.arrow"))) == 2)
    scene.damage(2)
    again = JobStore(scene.store.storage, "job")
    found = again.find_restorable(all_sinks_idempotent=False, on_damaged="fail")
    assert isinstance(found, RefuseRestore), found


@pytest.mark.parametrize("seed", range(5))
def test_without_checkpoints_a_restart_collects_anew_and_shows_only_what_the_last_attempt_collected(seed: int) -> None:
    env = cw.Environment(parallelism=2, checkpointing=None)
    numbers = env.read(cw.sequence(400), uid="numbers").with_columns(k=pl.col("value") % 7)
    numbers.key_by("k").agg(n=cw.count()).uid("counts").collect("counts")
    store = JobStore(MemoryStorage(), "job")
    definition = env.define("job", 2)
    simulation = Simulation(definition, store, ManualClock(), random.Random(seed).randrange)
    uid = definition.collected["counts"].uid
    crashed = False
    while not simulation.finished:
        if not simulation.step():
            assert simulation.advance_to_next_timer()
        if not crashed and len(store.collected(uid)) == 1:
            crashed = True
            simulation.crash()
            assert store.collected(uid) == []
    assert crashed
    simulation.run_until_idle()
    assert len(store.collected(uid)) == 2
