"""State in RocksDB on real Spark, with a worker killed in the middle, and nothing left on the local disk."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cutwater as cw
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.verification import verify
from tests.local_state import damage, rocksdb_folder
from tests.small_disk import fill, small_disk
from tests.spark.troubled import StuckInRestore
from tests.spark.workers import completed_checkpoints, kill, kill_worker, wait_until

pytestmark = pytest.mark.timeout(600)

RECORDS, KEYS = 60_000, 5_000


class Numbered(cw.KeyedProcess):
    seen = cw.ValueState("long")

    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        self.seen.value = (self.seen.value or 0) + 1
        yield row.k, self.seen.value


def written_by(store: JobStore) -> list[set[str]]:
    """Of each checkpoint: which attempts wrote the files of RocksDB that it needs."""
    return [{name.split("+a")[1].split("+")[0] for name in each.shared_files()} for each in store.completed()]


@pytest.mark.parametrize("incremental", [False, True], ids=["full", "incremental"])
def test_state_that_is_larger_than_its_cache_counts_once_over_a_killed_worker(
    tmp_path: Path, *, incremental: bool
) -> None:
    """Of files, the first restore is killed in the middle as well."""
    rocksdb = cw.RocksDB(incremental=incremental, cache="20kB", local_directories=[str(tmp_path / "local")])
    env = cw.Environment(
        parallelism=2,
        checkpointing=cw.Checkpointing("200ms", storage=f"file:{tmp_path / 'checkpoints'}"),
        restart=cw.fixed_delay(attempts=3, delay="10ms"),
        state_backend=StuckInRestore(rocksdb, tmp_path) if incremental else rocksdb,
    )
    keyed = env.read(cw.sequence(RECORDS, rate=15_000), uid="numbers").select(k=pl.col("value") % KEYS).key_by("k")
    keyed.agg(n=cw.count()).uid("counts").collect("counts")
    keyed.process(Numbered(), "k long, n long").uid("numbered").collect("numbered")
    job = env.start("rocksdb")
    wait_until(lambda: completed_checkpoints(job) >= 2, "two checkpoints")
    kill_worker(job, "numbered[0]")
    store = JobStore(FileStorage(str(tmp_path / "checkpoints")), "rocksdb")
    if incremental:
        wait_until((tmp_path / "restoring").exists, "files are fetched")
        kill(int((tmp_path / "restoring").read_text()))
        wait_until(lambda: any(writers == {"1", "3"} for writers in written_by(store)), "files of both attempts in one")
    result = job.wait("300s")
    assert result.attempts == (3 if incremental else 2)
    most: dict[int, int] = {}
    for row in result.rows("counts"):
        most[row.k] = max(most.get(row.k, 0), row.n)
    assert most == dict.fromkeys(range(KEYS), RECORDS // KEYS)
    expected = [(key, n) for key in range(KEYS) for n in range(1, RECORDS // KEYS + 1)]
    assert sorted((row.k, row.n) for row in result.rows("numbered")) == expected
    for checkpoint in store.completed():
        verify(store.storage, checkpoint)
    wait_until(lambda: not list(rocksdb_folder(tmp_path / "local").iterdir()), "the folders are removed")


def test_a_job_that_is_canceled_leaves_nothing_on_the_local_disk(tmp_path: Path) -> None:
    """Its workers end at once, and nobody may ever open state there again."""
    env = cw.Environment(
        parallelism=2,
        checkpointing=cw.Checkpointing("200ms", storage=f"file:{tmp_path / 'checkpoints'}"),
        state_backend=cw.RocksDB(incremental=True, cache="20kB", local_directories=[str(tmp_path / "local")]),
    )
    numbers = env.read(cw.sequence(None, rate=15_000), uid="numbers").select(k=pl.col("value") % KEYS)
    numbers.key_by("k").agg(n=cw.count()).uid("counts").write(cw.discard(), uid="out")
    job = env.start("canceled")
    wait_until(lambda: completed_checkpoints(job) >= 2, "two checkpoints")
    assert list(rocksdb_folder(tmp_path / "local").iterdir())
    job.cancel()
    wait_until(lambda: not list(rocksdb_folder(tmp_path / "local").iterdir()), "the folders are removed")


def test_a_job_goes_on_when_a_full_disk_has_room_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "16m") as disk:
        env = cw.Environment(
            parallelism=1,
            checkpointing=cw.Checkpointing(
                "200ms", storage=f"file:{tmp_path / 'checkpoints'}", tolerable_failures=1000
            ),
            restart=cw.fixed_delay(attempts=1000, delay="200ms"),
            state_backend=cw.RocksDB(incremental=True, cache="20kB", local_directories=[str(disk)]),
        )
        numbers = env.read(cw.sequence(KEYS * 4, rate=4000), uid="numbers").select(k=pl.col("value") % KEYS)
        numbers.key_by("k").process(Numbered(), "k long, n long").uid("numbered").collect("numbered")
        job = env.start("full")
        wait_until(lambda: completed_checkpoints(job) >= 2, "two checkpoints")
        ballast = fill(disk)
        wait_until(lambda: failures_of(job), "a checkpoint that finds no room")
        assert any(f"RocksDB in {disk}" in failure for failure in failures_of(job))
        ballast.unlink()
        result = job.wait("300s")
    assert sorted((row.k, row.n) for row in result.rows("numbered")) == [
        (k, n) for k in range(KEYS) for n in range(1, 5)
    ]


class Gathered(cw.KeyedProcess):
    """Wide state, so that most of it is in files."""

    seen = cw.ListState("string")

    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        self.seen.append(f"{row.k:0200}")
        yield row.k, len(list(self.seen))


def test_a_job_goes_on_from_its_last_checkpoint_when_the_disk_damaged_its_state(tmp_path: Path) -> None:
    local = tmp_path / "local"
    env = cw.Environment(
        parallelism=1,
        checkpointing=cw.Checkpointing("200ms", storage=f"file:{tmp_path / 'checkpoints'}"),
        restart=cw.fixed_delay(attempts=20, delay="10ms"),
        state_backend=cw.RocksDB(
            cache="20kB", write_buffer="100kB", block_cache="100kB", local_directories=[str(local)]
        ),
    )
    numbers = env.read(cw.sequence(KEYS * 4, rate=4000), uid="numbers").select(k=pl.col("value") % KEYS)
    numbers.key_by("k").process(Gathered(), "k long, n long").uid("gathered").collect("gathered")
    job = env.start("damaged")
    wait_until(lambda: completed_checkpoints(job) >= 2, "two checkpoints")

    def is_told() -> bool:
        """A file that was joined with others meanwhile is gone, and was in order when it was read."""
        time.sleep(0.2)
        with suppress(OSError, ValueError):
            damage(local)
        return any("cannot be read: Corruption" in line for line in job.log)

    wait_until(is_told, "a failure that names the damage")
    result = job.wait("300s")
    assert result.attempts > 1
    assert sorted((row.k, row.n) for row in result.rows("gathered")) == [
        (k, n) for k in range(KEYS) for n in range(1, 5)
    ]


def failures_of(job: Any) -> list[str]:
    reasons = [each.failure_reason or "" for each in job.checkpoints()]
    return [reason for reason in reasons if "Is the disk full" in reason]
