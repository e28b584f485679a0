"""Exactly once from unaligned checkpoints of a jammed job: through failures of every kind, and at another parallelism."""

from pathlib import Path

import pytest

from tests.spark.jammed import cancel_with_rows_in_flight, judge, overtaken_bytes, start
from tests.spark.workers import completed_checkpoints, kill_worker, wait_until

RECORDS = 12_000

pytestmark = pytest.mark.timeout(400)


def test_a_jammed_job_goes_through_failures_of_every_kind_and_gives_everything_once(tmp_path: Path) -> None:
    """A worker is killed; the first subtask that opens again fails, the next attempt fails in a function, and the last one,
    when all is done, in close."""
    job = start(tmp_path, "broadcast", 2, RECORDS, aligned_timeout="100ms")
    wait_until(lambda: completed_checkpoints(job) >= 2 and overtaken_bytes(tmp_path) > 0, "rows in flight are stored")
    (tmp_path / "open").touch()
    kill_worker(job, "numbered[1]")
    wait_until((tmp_path / "open.done").exists, "an attempt failed when it opened")
    taken = completed_checkpoints(job)
    wait_until(lambda: completed_checkpoints(job) > taken and overtaken_bytes(tmp_path) > 0, "the next one goes on")
    (tmp_path / "close").touch()
    (tmp_path / "process").touch()
    result = job.wait("200s")
    assert {each.name for each in tmp_path.glob("*.done")} == {"open.done", "process.done", "close.done"}, job.log
    assert (result.status, result.attempts) == ("finished", 5), job.log
    judge(tmp_path, "broadcast", RECORDS, began_with=2)


def test_a_jammed_job_goes_on_at_another_parallelism_with_the_rows_that_were_in_flight(tmp_path: Path) -> None:
    """3 to 5, and on to 2, each time from a checkpoint that overtook rows."""
    for parallelism in (3, 5):
        job = start(tmp_path, "broadcast", parallelism, RECORDS)
        cancel_with_rows_in_flight(job, tmp_path)
    job = start(tmp_path, "broadcast", 2, RECORDS)
    assert job.wait("200s").status == "finished"
    judge(tmp_path, "broadcast", RECORDS, began_with=3)
