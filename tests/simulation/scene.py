"""A small job in the simulation, stepped until what a test waits for has happened."""

import random
from collections.abc import Callable
from pathlib import Path

import polars as pl

import cutwater as cw
from cutwater.checkpoint.events import ManualTriggerRequested, RequestId
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_store import JobStore
from cutwater.testing.clock import ManualClock
from cutwater.testing.simulation import Simulation

MOST_STEPS = 100_000


class Scene:
    """A job in the simulation, with its files under ``folder``: what ``build`` makes, or a count of numbers by key whose
    output ``write`` takes."""

    def __init__(
        self,
        folder: Path,
        write: Callable[[cw.Stream], object] | None = None,
        records: int = 40_000,
        kind: type[Simulation] = Simulation,
        retain: int = 5,
        build: Callable[[cw.Environment], object] | None = None,
        job: str = "job",
        mode: str = "exactly_once",
        backend: cw.StateBackend | None = None,
    ) -> None:
        self.checkpoints = folder / "checkpoints" / job
        checkpointing = cw.Checkpointing("1h", storage=f"file:{folder / 'checkpoints'}", retain=retain, mode=mode)
        env = cw.Environment(parallelism=1, checkpointing=checkpointing, state_backend=backend)
        if build is not None:
            build(env)
        if write is not None:
            numbers = env.read(cw.sequence(records, rate=1000), uid="numbers").with_columns(k=pl.col("value") % 3)
            write(numbers.key_by("k").agg(n=cw.count()).uid("counts"))
        self.clock = ManualClock()
        self.store = JobStore(FileStorage(str(folder / "checkpoints")), job)
        self.simulation = kind(env.define(job, 1), self.store, self.clock, random.Random(1).randrange)
        self.withheld: str | None = None
        """Messages of this name never reach the driver."""
        self._requests = 0

    def step_until(self, happened: Callable[[], bool]) -> None:
        for _ in range(MOST_STEPS):
            if happened():
                return
            self.clock.advance(0.005)
            self._lose_withheld()
            self.simulation.step()
        raise AssertionError("it never came to that")

    def finish(self) -> None:
        self.step_until(lambda: self.simulation.finished)
        self.simulation.run_until_idle()

    def _lose_withheld(self) -> None:
        for sent in self.simulation._to_driver.values():
            for message in [each for each in sent if type(each).__name__ == self.withheld]:
                sent.remove(message)

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
