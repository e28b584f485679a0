"""Exactly once under SIGKILL: workers, executors and the driver die at random moments; the output does not show it."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import psutil
import pytest

from tests.chaos.chaos_job import KEYS
from tests.chaos.victims import executors, kill, kill_driver, python_workers
from tests.chaos.watching import LOOK_SECONDS, NaiveReader, broken_links, in_commit_order

JOB = Path(__file__).with_name("chaos_job.py")
DEADLINE_SECONDS = 1500.0


class Driver:
    """The job's driver process; started again after it was killed, with ``restore="auto"``."""

    def __init__(self, folder: Path, master: str, records: int, rate: float) -> None:
        self._folder = folder
        self._command = [sys.executable, str(JOB), str(folder), master, str(records), str(rate)]
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.starts += 1
        with (self._folder / "driver.txt").open("ab") as told:
            self.process = psutil.Popen(self._command, stdout=told, stderr=subprocess.STDOUT, cwd=self._folder)

    @property
    def output(self) -> str:
        return (self._folder / "driver.txt").read_text()[-6000:]


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    started: list[Driver] = []
    yield started
    for driver in started:
        if driver.process.poll() is None:
            kill_driver(driver.process)


def expected(records: int) -> pl.DataFrame:
    numbers = pl.DataFrame({"value": pl.int_range(records, eager=True)}).with_columns(k=pl.col("value") % KEYS)
    return numbers.group_by("k").agg(n=pl.len().cast(pl.Int64), total=pl.col("value").sum()).sort("k")


def wait_for(condition: Callable[[], bool], driver: Driver, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert driver.process.poll() in (None, 0), f"the driver died by itself:\n{driver.output}"
        assert time.monotonic() < deadline, f"never happened: {what}\n{driver.output}"
        time.sleep(LOOK_SECONDS)


def strike(victim: str, driver: Driver, chance: random.Random) -> bool:
    match victim:
        case "worker":
            found = python_workers(driver.process)
        case "executor":
            found = executors(driver.process)
        case _:
            kill_driver(driver.process)
            driver.start()
            return True
    return bool(found) and kill(chance.choice(found))


@pytest.mark.timeout(1800)
def test_the_output_of_a_job_killed_a_dozen_times_equals_the_truth(tmp_path: Path, drivers: list[Driver]) -> None:
    """Each blow falls when the output has come a random bit further, so that the job cannot end before the last one;
    every third is followed by another at once, which meets the job while it recovers.
    """
    records, seed = 5_000_000, random.randrange(1 << 30)
    chance = random.Random(seed)
    blows = ["worker"] * 6 + ["executor"] * 2 + ["driver"] * 2
    chance.shuffle(blows)
    driver = Driver(tmp_path, "local-cluster[2,8,1024]", records, rate=250_000)
    drivers.append(driver)
    reader = NaiveReader(tmp_path / "out")
    reader.start()
    struck: list[str] = []
    for number, victim in enumerate(blows):
        due = int((number + chance.random()) * records * 0.9 / len(blows))
        wait_for(lambda due=due: reader.records > due, driver, f"{due} records in the output")
        wait_for(lambda: strike(victim, driver, chance), driver, f"a {victim} to kill")  # noqa: B023
        struck.append(victim)
        if number % 3 == 2:
            moment = time.monotonic() + chance.random() * 3
            wait_for(lambda moment=moment: time.monotonic() > moment, driver, "the next moment")
            struck += ["worker"] if strike("worker", driver, chance) else []
    wait_for(lambda: driver.process.poll() is not None, driver, "the job's end")
    reader.finish()
    told = f"seed {seed}, struck {struck}\n{driver.output}"
    assert driver.process.returncode == 0, told
    assert len(struck) >= 10
    assert json.loads((tmp_path / "result.json").read_text())["status"] == "finished"
    assert not reader.complaints, told
    assert reader.looks > 100
    rows = in_commit_order(tmp_path / "out")
    assert set(reader.seen) == {str(path) for path in (tmp_path / "out").rglob("*.parquet")}
    assert broken_links(rows).is_empty(), (told, broken_links(rows))
    assert not rows.select("k", "link").is_duplicated().any(), told
    last = rows.group_by("k").agg(pl.col("n", "total").max()).sort("k")
    assert last.equals(expected(records)), told
    assert not list(tmp_path.glob(".out.cutwater/*/*/*")), "staged files were left behind"
