"""The rich pipeline on real Spark: each backend, undisturbed and with a worker killed, on one subtask and on three."""

from collections.abc import Set
from pathlib import Path

import pytest

import cutwater as cw
from tests.rich_pipeline import BACKENDS, JOINS, STATE_AND_WINDOWS, Told, difference, pipeline, told, truth
from tests.spark.workers import completed_checkpoints, kill_worker, wait_until

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.parametrize("backend", BACKENDS),
    # On three subtasks in two halves: some forty workers on two cores take minutes only to start.
    pytest.mark.parametrize(
        ("parallelism", "wanted", "victim"),
        [
            pytest.param(1, STATE_AND_WINDOWS | JOINS, "accounts[0]", id="1"),
            pytest.param(3, STATE_AND_WINDOWS, "ledger[2]", id="3-state-and-windows"),
            pytest.param(3, JOINS, "near_pairs[1]", id="3-joins"),
        ],
    ),
]

COUNT = 4000


@pytest.fixture(scope="module")
def expected() -> Told:
    return truth(COUNT)


def _started(folder: Path, backend: str, parallelism: int, wanted: Set[str], gate: Path | None) -> cw.Job:
    env = cw.Environment(
        parallelism=parallelism,
        checkpointing=cw.Checkpointing("500ms", storage=f"file:{folder / 'checkpoints'}"),
        state_backend=BACKENDS[backend],
        restart=cw.fixed_delay(attempts=3, delay="10ms"),
    )
    pipeline(env, COUNT, gate, wanted)
    return env.start("rich")


def test_everything_comes_out_right_when_nothing_happens(
    tmp_path: Path, expected: Told, backend: str, parallelism: int, wanted: Set[str], victim: str
) -> None:
    result = _started(tmp_path, backend, parallelism, wanted, gate=None).wait("300s")
    assert result.attempts == 1
    assert difference(told({name: result.rows(name) for name in wanted}), expected) == {}


def test_a_worker_killed_in_the_middle_changes_nothing(
    tmp_path: Path, expected: Told, backend: str, parallelism: int, wanted: Set[str], victim: str
) -> None:
    """The last third of the input comes when the worker is dead, so that it dies before the end on a machine of any speed."""
    gate = tmp_path / "gate"
    job = _started(tmp_path, backend, parallelism, wanted, gate)
    wait_until(lambda: completed_checkpoints(job) >= 2, "some checkpoints")
    kill_worker(job, victim)
    gate.touch()
    result = job.wait("300s")
    assert result.attempts == 2
    rows = {name: result.rows(name) for name in wanted}
    assert difference(told(rows), expected) == {}
    if "by_the_clock" in rows:
        assert not all(row.at_the_end for row in rows["by_the_clock"]), "no timer of the clock fired"
