"""Where a job starts and what its end leaves behind, as far as it does not take Spark to see it."""

import contextlib
import io
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import psutil
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import cutwater as cw
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_lock import JobLock
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.start import RunEnd, StartFresh
from cutwater.checkpoint.statistics import CheckpointHistory
from cutwater.control.messages import Hello
from cutwater.errors import ConfigError, RestoreError, StorageInUse
from cutwater.job.attempt import RootCause
from cutwater.job.definition import JobDefinition
from cutwater.job.handle import JobState
from cutwater.spark.runner import SparkRunner
from cutwater.spark.storage_calls import StorageCalls
from cutwater.testing.clock import ManualClock
from cutwater.testing.simulation import Simulation


def define(folder: Path, name: str, uid: str, **settings: Any) -> JobDefinition:
    checkpointing = cw.Checkpointing("1h", storage=f"file:{folder}", **settings)
    env = cw.Environment(parallelism=1, checkpointing=checkpointing)
    numbers = env.read(cw.sequence(20), uid="numbers").with_columns(k=pl.col("value") % 3)
    numbers.key_by("k").agg(n=cw.count()).uid(uid).collect("counts")
    return env.define(name, 1)


def run_to_the_end(folder: Path, definition: JobDefinition) -> str:
    """The path of its final checkpoint."""
    store = JobStore(FileStorage(str(folder)), definition.name)
    simulation = Simulation(definition, store, ManualClock())
    while not simulation.finished:
        if not simulation.step():
            assert simulation.advance_to_next_timer()
    return f"{folder}/{store.completed()[-1].folder}"


def runner(
    folder: Path, definition: JobDefinition, restore: str, session_free: Callable[[], None] = lambda: None
) -> SparkRunner:
    """What these tests look at needs nothing of its session but that nobody stopped it."""
    context = SimpleNamespace(isStopped=lambda: False)
    session = SimpleNamespace(sparkContext=SimpleNamespace(master="local[4]", _jsc=SimpleNamespace(sc=lambda: context)))
    return SparkRunner(
        cast(SparkSession, session),
        definition,
        JobStore(FileStorage(str(folder)), definition.name),
        JobState(definition.name, CheckpointHistory()),
        restore=restore,
        allow_non_restored_state=False,
        session_free=session_free,
    )


def test_a_path_that_does_not_fit_is_refused_at_the_call_and_costs_the_job_nothing(tmp_path: Path) -> None:
    mine, other = define(tmp_path, "mine", "counts"), define(tmp_path, "other", "sums")
    run_to_the_end(tmp_path, mine)
    path = run_to_the_end(tmp_path, other)
    store = JobStore(FileStorage(str(tmp_path)), "mine")
    before, own = store.record(), store.completed()
    with pytest.raises(RestoreError, match="uid 'sums'"):
        runner(tmp_path, mine, path)
    again = JobStore(FileStorage(str(tmp_path)), "mine")
    assert (again.record(), again.completed()) == (before, own)
    again.lock().release()


def test_at_most_once_says_that_it_restores_no_path(tmp_path: Path) -> None:
    path = run_to_the_end(tmp_path, define(tmp_path, "mine", "counts"))
    with pytest.raises(ConfigError, match="mode='at_most_once' restores no state"):
        runner(tmp_path, define(tmp_path, "mine", "counts", mode="at_most_once"), path)


def test_the_lock_and_the_session_are_free_before_anybody_hears_of_the_end(tmp_path: Path) -> None:
    statuses: list[str] = []

    def session_free() -> None:
        statuses.append(f"session free while {running._state.status}")

    def release() -> None:
        statuses.append(f"lock free while {running._state.status}")
        held.release()

    running = runner(tmp_path, define(tmp_path, "mine", "counts"), "auto", session_free)
    held = running._lock

    running._lock = JobLock(release)
    running.cancel()
    running.run()
    assert statuses == ["lock free while created", "session free while created"]
    assert running._state.status == "canceled"


def test_a_start_that_is_canceled_before_its_first_attempt_leaves_the_end_of_the_last_run_as_it_was(
    tmp_path: Path,
) -> None:
    mine = define(tmp_path, "mine", "counts")
    run_to_the_end(tmp_path, mine)
    JobStore(FileStorage(str(tmp_path)), "mine").mark_ended(RunEnd.FINISHED)
    running = runner(tmp_path, mine, "auto")
    running.cancel()
    running.run()
    facts = JobStore(FileStorage(str(tmp_path)), "mine").facts("auto", all_sinks_idempotent=False, on_damaged="fail")
    assert facts.end is RunEnd.FINISHED


def starting_over(folder: Path, restore: str) -> list[str]:
    running = runner(folder, define(folder, "mine", "counts"), restore)
    running.cancel()
    running.run()
    return [line for line in running._state.log.lines() if line.startswith("starting over")]


def test_a_known_job_that_starts_over_without_being_asked_to_says_why(tmp_path: Path) -> None:
    assert starting_over(tmp_path, "auto") == []
    JobStore(FileStorage(str(tmp_path)), "mine").acquire_attempt()
    assert starting_over(tmp_path, "auto") == ["starting over: the last run completed no checkpoint"]
    run_to_the_end(tmp_path, define(tmp_path, "mine", "counts"))
    assert starting_over(tmp_path, "auto") == []
    store = JobStore(FileStorage(str(tmp_path)), "mine")
    store.acquire_attempt()
    store.mark_ended(RunEnd.FINISHED)
    assert starting_over(tmp_path, "auto") == ["starting over: the last run finished by itself"]
    assert starting_over(tmp_path, "fresh") == []


def test_a_restart_before_the_first_checkpoint_says_that_it_starts_over_but_a_wait_for_slots_does_not(
    tmp_path: Path,
) -> None:
    running = runner(tmp_path, define(tmp_path, "mine", "counts"), "auto")
    for status, told in (("created", 0), ("waiting", 0), ("restarting", 1)):
        running._state.set_status(status)
        running._begin(StartFresh("the first") if status == "created" else None)
        said = [line for line in running._state.log.lines() if line.startswith("starting over")]
        assert said == ["starting over: no checkpoint was completed yet"] * told
    running.cancel()
    running.run()


@pytest.fixture
def left_behind() -> Iterator[subprocess.Popen[bytes]]:
    """A process that a driver which died may have left, stuck in a call of the user's."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def start_after_a_driver_that_noted(folder: Path, worker: Hello) -> SparkRunner:
    mine = define(folder, "mine", "counts")
    before = JobStore(FileStorage(str(folder)), "mine")
    before.acquire_attempt()
    before.note_workers([{**asdict(worker), "cores": 2}])  # as a later version may
    running = runner(folder, mine, "auto")
    running.cancel()  # before the first attempt: what comes before that is done all the same
    running.run()
    return running


def test_workers_of_a_driver_that_died_are_dead_before_anything_of_the_next_one_runs(
    tmp_path: Path, left_behind: subprocess.Popen[bytes]
) -> None:
    started = psutil.Process(left_behind.pid).create_time()
    running = start_after_a_driver_that_noted(tmp_path, Hello(socket.gethostname(), left_behind.pid, started))
    assert left_behind.wait(0) == -signal.SIGKILL
    assert any(f"worker {left_behind.pid} of" in line for line in running._state.log.lines())
    assert JobStore(FileStorage(str(tmp_path)), "mine").noted_workers(str) == []


def test_rule_30_broken_a_driver_that_does_not_make_sure_of_their_death_is_caught(
    tmp_path: Path, left_behind: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cutwater.spark.runner.confirm_dead", lambda *_: None)
    started = psutil.Process(left_behind.pid).create_time()
    start_after_a_driver_that_noted(tmp_path, Hello(socket.gethostname(), left_behind.pid, started))
    assert left_behind.poll() is None


def test_a_later_process_with_the_number_of_such_a_worker_is_left_alone(
    tmp_path: Path, left_behind: subprocess.Popen[bytes]
) -> None:
    started = psutil.Process(left_behind.pid).create_time()
    start_after_a_driver_that_noted(tmp_path, Hello(socket.gethostname(), left_behind.pid, started - 100))
    assert left_behind.poll() is None


def test_workers_that_are_noted_in_another_way_are_named_with_their_file(tmp_path: Path) -> None:
    mine = define(tmp_path, "mine", "counts")
    before = JobStore(FileStorage(str(tmp_path)), "mine")
    before.acquire_attempt()
    before.note_workers([{"machine": "here", "pid": 7}])
    running = runner(tmp_path, mine, "auto")
    running.run()
    assert "mine/workers.json in file:" in running._state.detail
    assert "KeyError: 'host'" in running._state.detail


class ClosedPipe(io.TextIOWrapper):
    """A pipe whose reader left."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        super().__init__(os.fdopen(writing, "wb"))


@pytest.fixture
def closed_pipe() -> Iterator[ClosedPipe]:
    pipe = ClosedPipe()
    yield pipe
    with contextlib.suppress(BrokenPipeError):
        pipe.close()


def test_a_job_whose_printed_rows_nobody_reads_is_canceled_and_keeps_its_checkpoints(
    tmp_path: Path, closed_pipe: ClosedPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = define(tmp_path, "mine", "counts", on_cancel="delete")
    run_to_the_end(tmp_path, definition)
    running = runner(tmp_path, definition, "auto")
    running._state.attempts = 1
    running._store.acquire_attempt(None)
    monkeypatch.setattr(sys, "stdout", closed_pipe)
    running.printed(["n=1"])
    running.printed(["n=2"])  # some more come until the attempt has ended
    running.run()
    assert running._state.status == "canceled"
    assert (
        running._state.log.lines().count(
            "nobody reads the standard output any more: the job is canceled; its checkpoints stay"
        )
        == 1
    )
    store = JobStore(FileStorage(str(tmp_path)), "mine")
    assert store.completed()
    assert store.facts("auto", all_sinks_idempotent=False, on_damaged="fail").end is RunEnd.CANCELED


def canceled_with_checkpoints_to_delete(folder: Path, delete: Callable[[Any], None]) -> SparkRunner:
    definition = define(folder, "mine", "counts", on_cancel="delete")
    run_to_the_end(folder, definition)
    running = runner(folder, definition, "auto")
    running._calls = StorageCalls(silence=0.2)
    running._state.attempts = 1
    running._store.acquire_attempt(None)
    running._store.delete_checkpoints = delete  # type: ignore[method-assign]
    running.cancel()
    running.run()
    return running


def test_delete_on_cancel_takes_the_damaged_ones_too(tmp_path: Path) -> None:
    deleted: list[Any] = []
    definition = define(tmp_path, "mine", "counts", on_cancel="delete")
    metadata = Path(run_to_the_end(tmp_path, definition), "metadata.json")
    assert metadata.exists(), list(metadata.parent.iterdir())
    metadata.write_bytes(b"not what was written")
    store = JobStore(FileStorage(str(tmp_path)), "mine")
    store.acquire_attempt()
    store.find_restorable(all_sinks_idempotent=False, on_damaged="fallback")
    running = runner(tmp_path, definition, "fresh")
    running._store, running._state.attempts = store, 1
    store.delete_checkpoints = deleted.extend  # type: ignore[method-assign]
    running.cancel()
    running.run()
    assert deleted == [int(metadata.parent.name.removeprefix("chk-"))]


def test_checkpoints_that_cannot_be_deleted_do_not_turn_a_cancel_into_a_failure(tmp_path: Path) -> None:
    def refuse(checkpoints: Any) -> None:
        raise OSError("read-only file system")

    running = canceled_with_checkpoints_to_delete(tmp_path, refuse)
    assert running._state.status == "canceled"
    assert "read-only file system" in "\n".join(running._state.log.lines())
    facts = JobStore(FileStorage(str(tmp_path)), "mine").facts("auto", all_sinks_idempotent=False, on_damaged="fail")
    assert facts.end is RunEnd.DELETED


def test_a_storage_that_hangs_over_a_deletion_does_not_hold_up_the_cancel(tmp_path: Path) -> None:
    answers = threading.Event()
    running = canceled_with_checkpoints_to_delete(tmp_path, lambda checkpoints: answers.wait(60))
    assert running._state.status == "canceled"
    with pytest.raises(StorageInUse):
        JobStore(FileStorage(str(tmp_path)), "mine").lock()
    answers.set()


class Leaving(cw.Source):
    """Somebody's ``sys.exit()`` where the job begins."""

    schema = pa.schema([("value", pa.int64())])

    def splits(self) -> list[Any]:
        sys.exit("no licence")

    def open(self, split: Any, position: Any, ctx: Any) -> Any:
        raise AssertionError("never opened")


def test_a_sys_exit_in_user_code_of_the_driver_fails_the_job_and_frees_its_folder(tmp_path: Path) -> None:
    env = cw.Environment(
        parallelism=1, checkpointing=cw.Checkpointing("1h", storage=f"file:{tmp_path}"), restart=cw.no_restart()
    )
    env.read(Leaving(), uid="orders").collect("out")
    definition = env.define("leaving", 1)
    leaving = runner(tmp_path, definition, "auto")
    leaving.start()
    leaving.join(30)
    assert not leaving.is_alive()
    assert isinstance(leaving._state.failure, cw.JobFailed)
    assert "no licence" in str(leaving._state.failure)
    with JobStore(FileStorage(str(tmp_path)), "leaving").lock():
        pass


def test_a_failure_that_no_other_attempt_can_help_is_not_restarted_however_many_restarts_are_left(
    tmp_path: Path,
) -> None:
    losing = runner(tmp_path, define(tmp_path, "mine", "counts"), "auto")
    with pytest.raises(cw.JobFailed, match=r"CommitLost: the transaction has expired\nNo restart: another attempt"):
        losing._restart_or_raise(RootCause("out[0]: CommitLost: the transaction has expired", permanent=True))
    assert losing._state.status == "created"
    losing._lock.release()
