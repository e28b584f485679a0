"""The rich pipeline on real Spark: each backend, undisturbed and with a worker killed, on one subtask and on three."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

import cutwater as cw
from tests.rich_pipeline import BACKENDS, BY_SUBTASK, RESULTS, difference, lines, pipeline, told, truth
from tests.spark.workers import completed_checkpoints, kill_worker, wait_until

pytestmark = pytest.mark.timeout(600)

WIDTHS = pytest.mark.parametrize("parallelism", [1, 3])

COUNT = 600
EXPECTED = truth(COUNT)


def _rows(result: cw.JobResult) -> dict[str, list[Any]]:
    return {name: list(result.rows(name)) for name in RESULTS}


def _wrong(rows: Mapping[str, Iterable[Any]]) -> dict[str, str]:
    return difference(told(rows), EXPECTED)


def _started(folder: Path, backend: str, parallelism: int, gate: Path | None, restore: str = "auto") -> cw.Job:
    env = cw.Environment(
        parallelism=parallelism,
        checkpointing=cw.Checkpointing("1s", storage=f"file:{folder / 'checkpoints'}"),
        state_backend=BACKENDS[backend],
        restart=cw.fixed_delay(attempts=3, delay="10ms"),
    )
    pipeline(env, COUNT, gate)
    return env.start("rich", restore=restore)


@WIDTHS
@pytest.mark.parametrize("backend", BACKENDS)
def test_everything_comes_out_right_when_nothing_happens(tmp_path: Path, backend: str, parallelism: int) -> None:
    job = _started(tmp_path, backend, parallelism, gate=None)
    result = job.wait("300s")
    assert result.attempts == 1, job.log
    assert _wrong(_rows(result)) == {}


@WIDTHS
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_worker_killed_in_the_middle_changes_nothing(tmp_path: Path, backend: str, parallelism: int) -> None:
    """The last third of the input comes when the worker is dead, so that it dies before the end on a machine of any speed."""
    gate = tmp_path / "gate"
    job = _started(tmp_path, backend, parallelism, gate)
    wait_until(lambda: completed_checkpoints(job) >= 2, "some checkpoints")
    kill_worker(job, f"ledger[{parallelism - 1}]")
    gate.touch()
    result = job.wait("300s")
    assert result.attempts == 2, job.log
    rows = _rows(result)
    assert _wrong(rows) == {}
    assert not all(row.at_the_end for row in rows["by_the_clock"]), "no timer of the clock fired"
    assert list(rows["late"]), "no record was late"


@pytest.mark.parametrize("backend", [name for name, each in BACKENDS.items() if each.incremental])
def test_a_wider_job_goes_on_from_what_a_narrow_one_stored_in_increments(tmp_path: Path, backend: str) -> None:
    gate = tmp_path / "gate"
    narrow = _started(tmp_path, backend, 1, gate)
    wait_until(lambda: completed_checkpoints(narrow) >= 2, "some checkpoints")
    narrow.cancel()
    gate.touch()
    result = _started(tmp_path, backend, 3, gate, restore="latest").wait("300s")
    rows = _rows(result)
    wrong = _wrong(rows)
    wrong.pop(BY_SUBTASK, None)  # it depends on how many there are
    assert wrong == {}
    assert 1 <= lines(row.number for row in rows["numbered"]) <= 3
