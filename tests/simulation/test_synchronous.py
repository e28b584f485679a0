"""``asynchronous=False``: a subtask stores its snapshot before it does anything else, the barrier included."""

import gc
import random
from dataclasses import replace
from typing import Any

import pytest

import cutwater as cw
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.flow.ids import CheckpointId, SubtaskId
from cutwater.state.frozen import FrozenTable
from cutwater.state.stored import StoredTable
from cutwater.subtask.chain import Chain
from cutwater.subtask.limits import FlowLimits
from cutwater.subtask.outputs import Outputs
from cutwater.subtask.setup import TableWriter
from cutwater.testing.clock import ManualClock
from cutwater.testing.run import _rows as decoded
from cutwater.testing.simulation import Simulation
from tests.simulation.topologies import KEYS, RECORD, Count, Numbers

RECORDS = 300
WRITE_SECONDS = 0.25
SMALL = FlowLimits(inbox_bytes=600, payload_bytes=64, linger_seconds=0.0, max_slice_rows=2)


class Logged(Simulation):
    """Notes what a subtask with state does, in its order; writing a table takes a while."""

    def __init__(self, backend: cw.StateBackend, log: list[tuple[str, int]]) -> None:
        self.log = log
        env = cw.Environment(
            parallelism=1,
            checkpointing=cw.Checkpointing("300ms", storage=cw.memory_storage("1GB"), timeout="1h"),
            state_backend=backend,
        )
        numbers = env.read(Numbers("numbers", 1, RECORDS, hesitant=False), uid="numbers")
        numbers.key_by("k").process(Count(), RECORD).uid("counts").rebalance().filter("true").collect("out")
        self.time = ManualClock()
        store = JobStore(MemoryStorage(1 << 30), "job")
        self.definition = replace(env.define("job", 1), limits=SMALL)
        super().__init__(self.definition, store, self.time, random.Random(5).randrange, buffer_rows=2)

    def _writer(self, subtask: SubtaskId) -> TableWriter:
        written, log, time = super()._writer(subtask), self.log, self.time

        class Slow:
            def write(
                self, checkpoint: CheckpointId, uid: str, table: FrozenTable, base: StoredTable | None
            ) -> tuple[StoredTable, tuple[bytes, ...]]:
                if uid == "counts":
                    log.append(("stored", checkpoint))
                    time.advance(WRITE_SECONDS)
                return written.write(checkpoint, uid, table, base)

        return Slow()


def run(backend: cw.StateBackend, monkeypatch: pytest.MonkeyPatch) -> tuple[Logged, list[tuple[str, int]]]:
    log: list[tuple[str, int]] = []
    barrier = Outputs.barrier

    def noted(self: Outputs, checkpoint: CheckpointId, triggered_at: float, **how: bool) -> Any:
        if self is simulation.subtasks[SubtaskId("counts", 0)]._outputs:
            log.append(("barrier", checkpoint))
        return barrier(self, checkpoint, triggered_at, **how)

    monkeypatch.setattr(Outputs, "barrier", noted)
    simulation = Logged(backend, log)
    while not simulation.finished:
        simulation.time.advance(0.01)
        if not simulation.step():
            simulation.advance_to_next_timer()
    return simulation, log


@pytest.mark.parametrize(
    "backend",
    [
        cw.Memory(asynchronous=False),
        cw.Memory(asynchronous=False, incremental=True),
        cw.RocksDB(asynchronous=False),
        cw.RocksDB(asynchronous=False, incremental=True),
    ],
    ids=["memory", "memory, incremental", "rocksdb", "rocksdb, incremental"],
)
def test_the_snapshot_is_stored_before_the_loop_goes_on(
    backend: cw.StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation, log = run(backend, monkeypatch)
    cuts = [checkpoint for what, checkpoint in log if what == "barrier"]
    assert len(cuts) >= 3
    for checkpoint in cuts:
        assert log.index(("stored", checkpoint)) < log.index(("barrier", checkpoint))
    for info in simulation.history.checkpoints():
        (counts,) = [part for part in info.subtasks if part.vertex == "counts"]
        assert (counts.sync_duration, counts.async_duration) == (pytest.approx(WRITE_SECONDS), 0.0)
    rows = decoded(simulation.store.collected.read(simulation.definition.collected["out"].uid))
    most = {k: max(row.n for row in rows if row.k == k) for k in range(KEYS)}
    assert sum(most.values()) == RECORDS


def test_the_loop_goes_on_before_the_snapshot_is_stored_unless_asked_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation, log = run(cw.Memory(), monkeypatch)
    cuts = [checkpoint for what, checkpoint in log if what == "barrier"]
    assert any(log.index(("barrier", each)) < log.index(("stored", each)) for each in cuts)
    for info in simulation.history.checkpoints():
        (counts,) = [part for part in info.subtasks if part.vertex == "counts"]
        assert counts.async_duration == pytest.approx(WRITE_SECONDS)
        assert counts.sync_duration < WRITE_SECONDS


def test_pythons_collector_does_not_come_in_the_middle_of_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would go through whatever was replaced since it came last, and the loop would stand still for that."""
    came: list[str] = []
    cuts = 0
    snapshot = Chain.snapshot

    def note(phase: str, info: dict[str, int]) -> None:
        came.append(phase)

    def calling_for_it(self: Chain, checkpoint: CheckpointId) -> Any:
        nonlocal cuts
        cuts += 1
        gc.callbacks.append(note)
        try:
            many: list[Any] = [[] for _ in range(2 * gc.get_threshold()[0])]
            assert many
            return snapshot(self, checkpoint)
        finally:
            gc.callbacks.remove(note)

    monkeypatch.setattr(Chain, "snapshot", calling_for_it)
    run(cw.Memory(), monkeypatch)
    assert cuts >= 3
    assert came == []
    assert gc.isenabled()
