"""Weights in operator state: learned as if nothing had happened, in process and with a killed worker on Spark."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import polars as pl
import pytest

import cutwater as cw
from cutwater.cli.pipeline_file import load
from tests.examples.conftest import EXAMPLES
from tests.spark.workers import completed_checkpoints, kill_worker, wait_until

Example = Callable[[str], ModuleType]
CHECKPOINT, FAIL = cw.testing.CHECKPOINT, cw.testing.FAIL
NUMBERS = list(range(1000))


def _models(model: ModuleType, samples: int) -> list[tuple[int, list[float]]]:
    """The truth: one loop over all samples."""
    weights, told = [0.0, 0.0, 0.0], []
    for number in range(samples):
        row = SimpleNamespace(**dict(zip(("id", "a", "b", "y"), model.sample(number), strict=True)))
        weights = model.learned(weights, row)
        if (number + 1) % model.TOLD_EVERY == 0:
            told.append((number + 1, weights))
    return told


def _told(rows: list[Any]) -> list[tuple[int, list[float]]]:
    """In order: the sink has more subtasks than the learner, so rows may pass each other."""
    return sorted((row.samples, list(row.weights)) for row in rows)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_hidden_rule_is_found_and_every_sample_is_scored(example: Example, parallelism: int) -> None:
    model = example("online_model")
    got = cw.testing.run(model.pipeline, {"numbers": NUMBERS}, parallelism=parallelism)
    assert _told(got["models"]) == _models(model, len(NUMBERS))
    assert _told(got["models"])[-1][1] == pytest.approx(model.HIDDEN, abs=0.1)
    assert sorted(row.id for row in got["scores"]) == NUMBERS


@pytest.mark.parametrize("parallelism", [1, 3])
def test_weights_survive_failures_to_the_last_digit(example: Example, parallelism: int) -> None:
    model = example("online_model")
    failing = cw.testing.script(
        NUMBERS[:50], FAIL, NUMBERS[50:250], CHECKPOINT, NUMBERS[250:420], FAIL, NUMBERS[420:600], CHECKPOINT, FAIL,
        NUMBERS[600:],
    )  # fmt: skip
    got = cw.testing.run(model.pipeline, {"numbers": failing}, parallelism=parallelism)
    assert _told(got["models"]) == _models(model, len(NUMBERS))
    assert sorted(row.id for row in got["scores"]) == NUMBERS


def test_those_that_use_the_model_still_know_it_after_a_failure(example: Example) -> None:
    """The model was told before the checkpoint, and no other one is told behind it."""
    model = example("online_model")
    script = cw.testing.script(NUMBERS[:100], CHECKPOINT, FAIL, NUMBERS[100:150])
    scores = cw.testing.run(model.pipeline, {"numbers": script}, parallelism=3)["scores"]
    later = {row.learned_from for row in scores if row.id >= 100}
    assert later == {100}


@pytest.fixture(scope="module")
def session() -> Iterator[None]:
    """One that others started is theirs to stop."""
    from pyspark.sql import SparkSession

    from cutwater.spark.session import local_session

    found = SparkSession.getActiveSession()
    own = None if found is not None else local_session(1)
    yield
    if own is not None:
        own.stop()


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("session")
def test_weights_survive_the_kill_of_the_worker_that_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: Example
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAMPLES", "6000")
    file = load(str(EXAMPLES / "online_model.py"))
    env = cw.Environment(
        parallelism=2,
        checkpointing=cw.Checkpointing("200ms", storage=f"file:{tmp_path / 'checkpoints'}"),
        restart=cw.fixed_delay(attempts=3, delay="10ms"),
    )
    file.write_into(env)
    job = env.start("online-model")
    wait_until(lambda: completed_checkpoints(job) >= 3, "some checkpoints")
    kill_worker(job, "numbers[0]")  # what one subtask reads, it learns: both are in one worker
    result = job.wait("200s")
    assert result.attempts == 2
    assert _told(result.rows("models")) == _models(example("online_model"), 6000)
    scores = pl.read_parquet(str(tmp_path / "output" / "scores_online" / "**" / "*.parquet"))
    assert sorted(scores["id"]) == list(range(6000))
