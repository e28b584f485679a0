"""Unaligned checkpoints of a jammed job: rows in flight are stored, and a killed worker costs and doubles nothing."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cutwater as cw
from tests.spark.workers import completed_checkpoints, kill_worker, wait_until

RECORDS = 12_000
KEYS = 50
SCHEMA = "value long, k long, n long"


class Numbered(cw.KeyedProcess):
    """The records of each key: a lost or repeated one leaves a trace in every later one."""

    seen = cw.ValueState("long")

    def process(self, row: Any, ctx: Any) -> Any:
        self.seen.value = (self.seen.value or 0) + 1
        yield (row.value, row.k, self.seen.value)


class Slow(cw.Process):
    def open(self, ctx: Any) -> None:
        """Longer than others need to send again: whatever they send must not overtake the rows that are replayed here."""
        time.sleep(1.0)

    def process(self, row: Any, ctx: Any) -> Any:
        time.sleep(0.001)
        yield row


@pytest.mark.timeout(400)
@pytest.mark.parametrize("aligned_timeout", [None, "100ms"])
def test_a_killed_worker_of_a_jammed_job_loses_and_doubles_nothing(tmp_path: Path, aligned_timeout: str | None) -> None:
    env = cw.Environment(
        parallelism=2,
        checkpointing=cw.Checkpointing(
            "300ms", storage=f"file:{tmp_path / 'checkpoints'}", unaligned=True, aligned_timeout=aligned_timeout
        ),
        restart=cw.fixed_delay(attempts=5, delay="10ms"),
    )
    numbers = env.read(cw.sequence(RECORDS), uid="numbers").with_columns(k=pl.col("value") % KEYS)
    counted = numbers.key_by("k").process(Numbered, SCHEMA).uid("counted")
    slow = counted.rebalance().process(Slow, SCHEMA).uid("slow")
    slow.write(cw.parquet_sink(tmp_path / "out"), uid="out")
    job = env.start(f"jammed-{aligned_timeout}")
    wait_until(lambda: completed_checkpoints(job) >= 3, "checkpoints of the jammed job")
    kill_worker(job, "slow[1]")
    result = job.wait("300s")
    assert (result.status, result.attempts) == ("finished", 2), job.log
    rows = pl.read_parquet(str(tmp_path / "out" / "**" / "*.parquet"))
    assert Counter(rows["value"].to_list()) == Counter(range(RECORDS))
    numbered = rows.group_by("k").agg(pl.col("n").sort()).rows()
    assert all(n == list(range(1, RECORDS // KEYS + 1)) for _, n in numbered)
    taken = [info for info in job.checkpoints() if info.status == "completed" and info.unaligned]
    assert any(info.in_flight_bytes > 0 for info in taken), "nothing was in flight: nothing was tested"


@pytest.mark.timeout(400)
def test_restores_do_not_add_to_what_is_in_flight(tmp_path: Path) -> None:
    def most_in_flight() -> int:
        """Of all completed checkpoints of one more run, which goes on where the last one stopped, in the middle of its jam."""
        env = cw.Environment(
            parallelism=2,
            checkpointing=cw.Checkpointing("300ms", storage=f"file:{tmp_path / 'checkpoints'}", unaligned=True),
        )
        numbers = env.read(cw.sequence(None), uid="numbers").with_columns(text=pl.lit("x" * 200))
        slow = numbers.rebalance().process(Slow, "value long, text string").uid("slow")
        slow.write(cw.discard(), uid="dropped")
        job = env.start("again-and-again")
        wait_until(lambda: completed_checkpoints(job) >= 5, "checkpoints of the jammed job")
        job.cancel()
        return max(part.in_flight_bytes for info in job.checkpoints() for part in info.subtasks)

    first, *_, last = (most_in_flight() for _ in range(3))
    assert 0 < last < 2 * first
