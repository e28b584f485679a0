"""Increments on real Spark: small beside their base, and gone on with by the next attempt after a worker was killed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cutwater as cw
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.verification import verify
from cutwater.state.stored import StoredTable
from tests.spark.workers import completed_checkpoints, kill_worker, wait_until

pytestmark = pytest.mark.timeout(600)

RECORDS, KEYS, HOT = 200_000, 40_000, 400


class Numbered(cw.KeyedProcess):
    seen = cw.ValueState("long")

    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        self.seen.value = (self.seen.value or 0) + 1
        if row.k < HOT:
            yield row.k, self.seen.value


def counts_of_latest(store: JobStore) -> list[StoredTable]:
    """As the latest checkpoint has them."""
    return [
        table
        for checkpoint in store.completed()[-1:]
        for record in checkpoint.subtasks
        for operator in record.snapshot.operators
        for table in operator.tables
        if operator.uid == "counts"
    ]


def test_a_killed_worker_goes_on_from_increments_and_adds_to_them(tmp_path: Path) -> None:
    """Each key once, then a few hot ones again and again."""
    env = cw.Environment(
        parallelism=2,
        checkpointing=cw.Checkpointing("300ms", storage=f"file:{tmp_path}", retain=3),
        restart=cw.fixed_delay(attempts=3, delay="10ms"),
        state_backend=cw.Memory(incremental=True),
    )
    value = pl.col("value")
    records = env.read(cw.sequence(RECORDS, rate=25_000), uid="numbers").select(
        k=pl.when(value < KEYS).then(value).otherwise(value % HOT)
    )
    keyed = records.key_by("k")
    counts = keyed.agg(n=cw.count()).uid("counts").filter(pl.col("k") < HOT)
    counts.collect("counts")
    keyed.process(Numbered(), "k long, n long").uid("numbered").collect("numbered")
    job = env.start("increments")
    read = job._runner._moved.so_far  # what was read so far decides when the hot keys begin
    wait_until(lambda: read(job._state.progress).read > 2 * KEYS, "all keys are there")
    store = JobStore(FileStorage(str(tmp_path)), "increments")
    # Early in a chain: near its end the next attempt would begin with a base.
    chains = wait_until(
        lambda: [table.files for table in counts_of_latest(store) if len(table.files) in (3, 4)], "a chain of changes"
    )
    kill_worker(job, "numbered[0]")
    before = completed_checkpoints(job)
    wait_until(lambda: completed_checkpoints(job) >= before + 2, "checkpoints of the next attempt")
    written_by = [{name.split("+a")[1].split("+")[0] for name in each.shared_files()} for each in store.completed()]
    result = job.wait("300s")
    assert result.attempts == 2
    assert {"1", "2"} in written_by, "the chain does not go on over the failure"
    for base, *changes in chains:
        assert all(file.size < 0.1 * base.size for file in changes), chains
    assert any(info.written_bytes < info.state_bytes for info in job.checkpoints())

    times = 1 + (RECORDS - KEYS) // HOT
    most: dict[int, int] = {}
    for row in result.rows("counts"):
        most[row.k] = max(most.get(row.k, 0), row.n)
    assert most == dict.fromkeys(range(HOT), times)
    expected = [(key, n) for key in range(HOT) for n in range(1, times + 1)]
    assert sorted((row.k, row.n) for row in result.rows("numbered")) == expected

    for checkpoint in store.completed():
        verify(store.storage, checkpoint)
    store.acquire_attempt()
    store.delete_leftovers()
    referenced = {name for checkpoint in store.completed() for name in checkpoint.shared_files()}
    assert set(store.storage.list(store.layout.shared)) == referenced


def test_a_claimed_checkpoint_is_gone_on_from_and_built_on(tmp_path: Path) -> None:
    def environment() -> cw.Environment:
        env = cw.Environment(
            parallelism=1,
            checkpointing=cw.Checkpointing("200ms", storage=f"file:{tmp_path}", retain=1),
            state_backend=cw.Memory(incremental=True),
        )
        numbers = env.read(cw.sequence(30_000, rate=6_000), uid="numbers").select(k=pl.col("value") % 30)
        numbers.key_by("k").agg(n=cw.count()).uid("counts").collect("counts")
        return env

    old = environment().start("old")
    before = JobStore(FileStorage(str(tmp_path)), "old")
    wait_until(lambda: any(len(table.files) in (2, 3, 4) for table in counts_of_latest(before)), "a chain of changes")
    old.cancel()
    old.wait("60s")
    left = before.completed()[-1]
    new = environment().start("new", restore=tmp_path / "old" / f"chk-{left.id}", claim=True)
    store = JobStore(FileStorage(str(tmp_path)), "new")
    first = wait_until(store.completed, "a checkpoint")[0]
    assert any("+claimed+" in name for name in first.shared_files())
    result = new.wait("120s")
    assert max(row.n for row in result.rows("counts")) == 1000
    verify(store.storage, store.completed()[-1])
