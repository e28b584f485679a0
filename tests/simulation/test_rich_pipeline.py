"""The rich pipeline in process: every backend, parallelism and order of events, with failures where they hurt."""

import random
from functools import partial
from typing import Any

import pytest

import cutwater as cw
from cutwater.testing import ADVANCE, CHECKPOINT, FAIL, TRIGGER, run, script
from tests.rich_pipeline import BACKENDS, difference, pipeline, told, truth

COUNT = 400
NUMBERS = list(range(COUNT))


def _environment(backend: str, parallelism: int) -> cw.Environment:
    checkpointing = cw.Checkpointing("3650 days", storage=cw.memory_storage("1GB"))
    return cw.Environment(parallelism=parallelism, checkpointing=checkpointing, state_backend=BACKENDS[backend])


def _run(backend: str, parallelism: int, inputs: Any, seed: int) -> dict[str, list[Any]]:
    choose = random.Random(seed).randrange
    return run(partial(pipeline, count=COUNT), inputs, environment=_environment(backend, parallelism), choose=choose)


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("backend", BACKENDS)
def test_everything_comes_out_right_when_nothing_happens(backend: str, parallelism: int) -> None:
    got = _run(backend, parallelism, {}, seed=1)
    assert difference(told(got), truth(COUNT)) == {}


def _failing(seed: int) -> dict[str, Any]:
    """Marks at places of chance: checkpoints, one that has only begun when all dies, failures, and steps of the clock."""
    chance = random.Random(seed)
    inputs = {}
    for uid, marks in (
        ("orders", [CHECKPOINT, FAIL, ADVANCE("1s"), TRIGGER, FAIL, CHECKPOINT]),
        ("payments", [ADVANCE("70ms"), CHECKPOINT, FAIL]),
    ):
        cuts = sorted(chance.sample(range(1, COUNT), len(marks)))
        parts = [NUMBERS[begin:end] for begin, end in zip([0, *cuts], [*cuts, COUNT], strict=True)]
        steps: list[Any] = [parts[0]]
        for mark, part in zip(marks, parts[1:], strict=True):
            steps += [mark, part]
        inputs[uid] = script(*steps)
    return inputs


# Every attempt opens some twenty databases, which takes its time: half as many failures there.
SEEDS = [(backend, seed) for backend in BACKENDS for seed in range(2 if "rocksdb" in backend else 4)]


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(("backend", "seed"), SEEDS)
def test_failures_change_nothing_wherever_they_come(backend: str, parallelism: int, seed: int) -> None:
    got = _run(backend, parallelism, _failing(seed), seed)
    assert difference(told(got), truth(COUNT)) == {}


@pytest.mark.parametrize("backend", BACKENDS)
def test_timers_of_the_clock_fire_in_between_and_not_only_at_the_end(backend: str) -> None:
    got = _run(backend, 2, _failing(seed=3), seed=3)
    assert not all(row.at_the_end for row in got["by_the_clock"])
    assert len({row.window_start for row in got["clock_windows"]}) > 1
