"""Slices are as long as their rows allow, however long they waited for a core that others had."""

import polars as pl

import cutwater as cw
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.testing.clock import ManualClock
from cutwater.testing.run import _rows as decoded
from cutwater.testing.simulation import Simulation

ROWS = 20_000
SLICE_SECONDS = 0.5
ROW_SECONDS = 0.005


class Machine(ManualClock):
    """A slice takes long on it: because each row does, or because others have the core."""

    waits = False
    waited = 0.0

    def waited_for_core(self) -> float:
        return self.waited

    def take_long(self, rows: int) -> None:
        self.advance(SLICE_SECONDS if self.waits else rows * ROW_SECONDS)
        if self.waits:
            self.waited += SLICE_SECONDS


machine = Machine()
"""Found by name: the pipeline is copied to its subtasks, as to other processes."""


def slow(frame: pl.DataFrame) -> pl.DataFrame:
    machine.take_long(frame.height)
    return pl.DataFrame({"rows": [frame.height]})


def slices(rows: int, *, waits: bool) -> list[int]:
    global machine
    machine = Machine()
    machine.waits = waits
    env = cw.Environment(parallelism=1, checkpointing=cw.Checkpointing("1h", storage=cw.memory_storage("1MB")))
    env.read(cw.sequence(rows), uid="numbers").map_batches(slow, "rows long").collect("slices")
    definition = env.define("job", 1)
    simulation = Simulation(definition, JobStore(MemoryStorage(1 << 20), "job"), machine)
    while not simulation.finished:
        if not simulation.step():
            simulation.advance_to_next_timer()
    return [row.rows for row in decoded(simulation.store.collected.read(definition.collected["slices"].uid))]


def test_slices_stay_long_when_it_is_the_machine_that_is_busy() -> None:
    found = slices(ROWS, waits=True)
    assert sum(found) == ROWS
    assert found[:-1] == sorted(found[:-1]), "they only became longer"
    assert max(found) >= 4096


def test_slices_become_short_when_it_is_the_rows_that_take_long() -> None:
    found = slices(ROWS // 20, waits=False)
    assert sum(found) == ROWS // 20
    assert max(found) * ROW_SECONDS < 0.1
