"""The file sink's process killed at every step: every row is visible once, and nothing uncommitted ever is."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from cutwater.connectors.manifest import committed_files
from tests.unit.connectors import file_job
from tests.unit.connectors.file_job import CHECKPOINTS, ROWS_PER_CHECKPOINT, Journal

ALL_VALUES = list(range(CHECKPOINTS * ROWS_PER_CHECKPOINT))


class Children:
    """Runs jobs in processes of their own until they are killed."""

    def __init__(self) -> None:
        root = Path(__file__).parents[3]
        command = [sys.executable, "-m", "tests.unit.connectors.file_job"]
        self._server = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run_until_killed(self, target: Path, form: str, attempt: int, die_at: int) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps([str(target), form, attempt, die_at]) + "\n")
        self._server.stdin.flush()
        assert self._server.stdout.readline() == f"{-signal.SIGKILL}\n"

    def stop(self) -> None:
        self._server.communicate()


@pytest.fixture
def children() -> Iterator[Children]:
    children = Children()
    yield children
    children.stop()


class Watcher(threading.Thread):
    """Reads the target over and over as a naive reader would, and notes whatever should not be."""

    def __init__(self, target: Path) -> None:
        super().__init__()
        self._target = target
        self._journal = Journal(target.with_suffix(".journal"))
        self._stopped = threading.Event()
        self._seen: dict[Path, list[int]] = {}
        self.wrong: list[str] = []

    def run(self) -> None:
        while not self._stopped.wait(0.001):
            try:
                self.look()
            except Exception as error:
                self.wrong.append(repr(error))
                return

    def stop(self) -> None:
        self._stopped.set()
        self.join()
        self.look()

    def look(self) -> None:
        found = [path for path in self._target.glob("**/*") if path.is_file()]
        self.wrong += [f"{path} vanished" for path in self._seen.keys() - set(found)]
        for path in found:
            if path in self._seen:
                continue
            frame = read(path)
            self._seen[path] = frame["value"].to_list()
            completed = {entry["checkpoint"] for entry in self._journal.completed()}
            if early := set(frame["checkpoint"].to_list()) - completed:
                self.wrong.append(f"{path} shows rows of checkpoint {early}, completed are {completed}")


def read(path: Path) -> pl.DataFrame:
    match path.suffix:
        case ".parquet":
            return pl.read_parquet(path, hive_partitioning=False)
        case ".json":
            return pl.read_ndjson(path)
        case ".csv":
            return pl.read_csv(path)
        case _:
            raise AssertionError(f"{path} is no data file")


def visible(target: Path) -> list[int]:
    return sorted(v for path in target.glob("**/*") if path.is_file() for v in read(path)["value"].to_list())


@pytest.mark.parametrize(("form", "first", "every"), [("parquet", 0, 1), ("json", 0, 3), ("csv", 1, 3)])
def test_every_row_is_visible_once_wherever_the_process_is_killed(
    tmp_path: Path, form: str, first: int, every: int, children: Children
) -> None:
    """The steps are the same for all forms; what is written between them is not."""
    steps = file_job.run(tmp_path / "whole", form, attempt=1)
    assert visible(tmp_path / "whole") == ALL_VALUES
    for die_at in range(first, steps, every):
        target = tmp_path / f"die{die_at}"
        watcher = Watcher(target)
        watcher.start()
        try:
            children.run_until_killed(target, form, 1, die_at)
            file_job.run(target, form, attempt=2)
        finally:
            watcher.stop()
        assert watcher.wrong == [], f"step {die_at}"
        assert visible(target) == ALL_VALUES, f"step {die_at}"
        assert [p for p in target.with_name(f".{target.name}.cutwater").glob("**/*.*") if p.suffix != ".json"] == [], (
            f"step {die_at} left something staged"
        )
        assert sorted(committed_files(target)) == sorted(str(p) for p in target.glob("**/*") if p.is_file())


def test_recovery_may_be_killed_at_every_step_too(tmp_path: Path, children: Children) -> None:
    steps = file_job.run(tmp_path / "whole", "parquet", attempt=1)
    for die_at in range(6, steps, 11):
        for die_again_at in range(8):
            target = tmp_path / f"die{die_at}-{die_again_at}"
            for attempt, step in ((1, die_at), (2, die_again_at)):
                children.run_until_killed(target, "parquet", attempt, step)
            file_job.run(target, "parquet", attempt=3)
            assert visible(target) == ALL_VALUES, f"steps {die_at}, {die_again_at}"
