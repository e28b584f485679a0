"""The thin line through everything: sequence -> key_by -> running sum -> parquet, on two levels, over a SIGKILL."""

import time
from pathlib import Path

import polars as pl
import pytest

import cutwater as cw
from tests.spark.workers import attempt_number, completed_checkpoints, kill_worker, wait_until, worker_pids

KEYS = 100


def sums_job(folder: Path, records: int, rate: float, restarts: int) -> cw.Environment:
    env = cw.Environment(
        parallelism=2,
        checkpointing=cw.Checkpointing("200ms", storage=f"file:{folder / 'checkpoints'}"),
        restart=cw.fixed_delay(attempts=restarts, delay="10ms"),
    )
    numbers = env.read(cw.sequence(records, rate=rate), uid="numbers").with_columns(k=pl.col("value") % KEYS)
    sums = numbers.key_by("k").agg(n=cw.count(), total=cw.sum("value")).uid("sums")
    sums.write(cw.parquet_sink(folder / "out"), uid="out")
    return env


def committed(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(str(folder / "out" / "**" / "*.parquet"))


def expected_sums(records: int) -> pl.DataFrame:
    numbers = pl.DataFrame({"value": range(records)}).with_columns(k=pl.col("value") % KEYS)
    return numbers.group_by("k").agg(n=pl.len().cast(pl.Int64), total=pl.col("value").sum()).sort("k")


@pytest.mark.timeout(400)
def test_a_running_sum_on_two_levels_is_exact_although_a_worker_was_killed(tmp_path: Path) -> None:
    records = 300_000
    env = sums_job(tmp_path, records, rate=60_000, restarts=3)
    job = env.start("thin-line")
    wait_until(lambda: completed_checkpoints(job) >= 2, "two checkpoints completed")
    kill_worker(job, "sums[1]")
    result = job.wait("300s")
    assert (result.status, result.attempts) == ("finished", 2), job.log
    assert any("sums[1]: its Python worker (pid " in line and "died" in line for line in job.log), job.log
    assert any(line.startswith("restoring checkpoint") for line in job.log), job.log
    rows = committed(tmp_path)
    assert not rows.select("k", "n").is_duplicated().any()
    last = rows.group_by("k").agg(pl.col("n", "total").max()).sort("k")
    assert last.equals(expected_sums(records))


@pytest.mark.timeout(400)
def test_the_time_from_a_kill_to_the_first_record_of_the_next_attempt_is_told(tmp_path: Path) -> None:
    """A figure, not a verdict: the target (2 s, warm, quiet machine) is checked by the benchmarks."""
    job = sums_job(tmp_path, records=1_200_000, rate=60_000, restarts=10).start("restarts")
    told = []
    for subtask in ("sums[0]", "numbers[1]"):
        before = wait_until(lambda: completed_checkpoints(job), "a checkpoint completed")
        wait_until(lambda seen=before: completed_checkpoints(job) > seen, "another checkpoint completed")
        wait_until(lambda: worker_pids(job), "all subtasks run")
        attempt = attempt_number(job)
        killed = time.monotonic()
        kill_worker(job, subtask)
        wait_until(lambda old=attempt: (attempt_number(job) or old) != old, "the next attempt runs")
        running = time.monotonic() - killed
        wait_until(lambda: any(p.records_in for s, p in job._runner._attempt.driver.progress.items()), "records flow")
        told.append(
            f"{subtask}: all subtasks ready after {running:.2f} s, records seen {time.monotonic() - killed:.2f} s"
        )
    job.cancel()
    print("\n".join(told), *job.log, sep="\n")
    assert job.status == "canceled"
