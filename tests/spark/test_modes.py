"""At most, at least and exactly once on one job with one killed worker: what each mode lets the output show."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.connectors.sink import PlainSink
from tests.spark.workers import completed_checkpoints, kill_worker, wait_until

RECORDS = 30_000
RATE = 6_000


class Journal(PlainSink):
    """Writes each row at once, so that whatever is processed twice is seen twice."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, ctx: Any) -> None:
        self.folder.mkdir(exist_ok=True)
        name = f"{ctx.subtask}-{ctx.attempt}.jsonl"
        self.file = os.open(self.folder / name, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def write(self, batch: pa.RecordBatch) -> None:
        os.write(self.file, "".join(f"{json.dumps(row)}\n" for row in batch.to_pylist()).encode())

    def close(self) -> None:
        os.close(self.file)

    def values(self) -> list[int]:
        """Of whole lines: the last one of a killed worker may be torn."""
        texts = [file.read_text() for file in self.folder.glob("*.jsonl")]
        return [json.loads(line)["value"] for text in texts for line in text.split("\n")[:-1]]


def run_with_a_kill(folder: Path, mode: str) -> tuple[cw.JobResult, Journal]:
    env = cw.Environment(
        parallelism=2,
        checkpointing=cw.Checkpointing("200ms", storage=f"file:{folder / 'checkpoints'}", mode=mode),
        restart=cw.fixed_delay(attempts=5, delay="10ms"),
    )
    journal = Journal(folder / "journal")
    numbers = env.read(cw.sequence(RECORDS, rate=RATE), uid="numbers")
    numbers.write(cw.parquet_sink(folder / "out"), uid="out")
    numbers.rebalance().map(lambda r: r, "value long").uid("copies").write(journal, uid="journal")
    job = env.start(f"killed-{mode}")
    wait_until(lambda: completed_checkpoints(job) >= 2 and len(journal.values()) > 1000, "rows and checkpoints")
    kill_worker(job, "copies[1]")
    result = job.wait("300s")
    assert result.attempts == 2, job.log
    return result, journal


def committed(folder: Path) -> list[int]:
    return pl.read_parquet(str(folder / "out" / "**" / "*.parquet"))["value"].to_list()


@pytest.mark.timeout(400)
def test_at_most_once_doubles_nothing_and_goes_on_behind_what_it_reserved(tmp_path: Path) -> None:
    result, journal = run_with_a_kill(tmp_path, "at_most_once")
    assert result.status == "finished"
    for values in (journal.values(), committed(tmp_path)):
        seen = Counter(values)
        assert seen and max(seen.values()) == 1
        assert set(seen) <= set(range(RECORDS))
    assert RECORDS - 1 in journal.values()


@pytest.mark.timeout(400)
def test_at_least_once_loses_nothing(tmp_path: Path) -> None:
    result, journal = run_with_a_kill(tmp_path, "at_least_once")
    assert result.status == "finished"
    assert set(journal.values()) == set(range(RECORDS))
    assert set(committed(tmp_path)) == set(range(RECORDS))


@pytest.mark.timeout(400)
def test_exactly_once_commits_each_row_once_while_a_plain_sink_may_repeat(tmp_path: Path) -> None:
    result, journal = run_with_a_kill(tmp_path, "exactly_once")
    assert sorted(committed(tmp_path)) == list(range(RECORDS))
    assert set(journal.values()) == set(range(RECORDS))
    assert (result.records_in, result.records_out) == (RECORDS, 2 * RECORDS)


def test_exactly_once_from_a_socket_is_refused_before_anything_starts(tmp_path: Path) -> None:
    env = cw.Environment(checkpointing=cw.Checkpointing("1s", storage=f"file:{tmp_path}"))
    env.read(cw.socket("localhost", 9), uid="lines").collect("lines")
    with pytest.raises(
        cw.ConfigError, match=r"\(uid 'lines'\) cannot be read again after a failure.*allow_data_loss=True"
    ):
        env.start("socket")
