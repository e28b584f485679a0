"""Jammed jobs of every form with unaligned checkpoints: workers die at random, user code fails wherever it can, and the
parallelism changes in between."""

import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.spark.jammed import (
    JAMMED,
    cancel_with_rows_in_flight,
    go_through_every_failure,
    judge,
    overtaken_bytes,
    start,
)
from tests.spark.workers import kill, wait_until, worker_pids

RECORDS = 12_000

pytestmark = pytest.mark.timeout(900)


def _kill_at_random(job: Any, folder: Path, rng: random.Random) -> None:
    """Some worker, at some moment behind a checkpoint that holds rows in flight."""
    wait_until(lambda: overtaken_bytes(folder) > 0, "a checkpoint that overtook rows")
    pids = wait_until(lambda: worker_pids(job), "all subtasks run")
    time.sleep(rng.uniform(0.0, 0.6))
    kill(rng.choice(sorted(pids.values())))


@pytest.mark.parametrize("path", [(1, 2), (3, 5), (5, 3)], ids=str)
@pytest.mark.parametrize("aligned_timeout", [None, "100ms"])
@pytest.mark.parametrize("topology", JAMMED)
def test_jammed_jobs_give_everything_once(
    tmp_path: Path, topology: str, aligned_timeout: str | None, path: tuple[int, int]
) -> None:
    rng = random.Random(f"{topology} {aligned_timeout} {path}")
    before, after = path
    job = start(tmp_path, topology, before, RECORDS, aligned_timeout)
    _kill_at_random(job, tmp_path, rng)
    wait_until(lambda: worker_pids(job), "the next attempt runs")
    cancel_with_rows_in_flight(job, tmp_path)
    job = start(tmp_path, topology, after, RECORDS, aligned_timeout)
    _kill_at_random(job, tmp_path, rng)
    assert job.wait("600s").status == "finished", job.log
    judge(tmp_path, topology, RECORDS, began_with=before)


@pytest.mark.parametrize("path", [(1,), (2,), (5,), (1, 2), (3, 5), (5, 3)], ids=str)
@pytest.mark.parametrize("aligned_timeout", [None, "100ms"])
@pytest.mark.parametrize("topology", JAMMED)
def test_jammed_jobs_go_through_failures_of_every_kind(
    tmp_path: Path, topology: str, aligned_timeout: str | None, path: tuple[int, ...]
) -> None:
    go_through_every_failure(tmp_path, topology, path, RECORDS, aligned_timeout)
