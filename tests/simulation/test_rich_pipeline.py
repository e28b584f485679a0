"""The rich pipeline in process: every backend, parallelism and order of events, with failures where they hurt."""

import itertools
import random
from collections import Counter
from functools import partial
from typing import Any

import pytest

import cutwater as cw
from cutwater.testing import ADVANCE, CHECKPOINT, FAIL, TRIGGER, run, script
from tests.rich_pipeline import BACKENDS, CLOCK_WINDOWS, RESULTS, difference, pipeline, told, truth

COUNT = 300
NUMBERS = list(range(COUNT))


def _environment(backend: str, parallelism: int, *, unaligned: bool = False) -> cw.Environment:
    checkpointing = cw.Checkpointing("3650 days", storage=cw.memory_storage("1GB"), unaligned=unaligned)
    return cw.Environment(parallelism=parallelism, checkpointing=checkpointing, state_backend=BACKENDS[backend])


def _run(backend: str, parallelism: int, inputs: Any, seed: int, *, unaligned: bool = False) -> dict[str, list[Any]]:
    choose = random.Random(seed).randrange
    environment = _environment(backend, parallelism, unaligned=unaligned)
    return run(partial(pipeline, count=COUNT), inputs, environment=environment, choose=choose)


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


IN_MEMORY = [name for name, backend in BACKENDS.items() if isinstance(backend, cw.Memory)]
ON_DISK = [name for name in BACKENDS if name not in IN_MEMORY]


@pytest.mark.parametrize(
    ("backend", "parallelism", "seed"),
    [
        *itertools.product(IN_MEMORY, [1, 3], range(3)),
        # Some hundred databases are opened in each run, and that takes its time.
        *itertools.product(ON_DISK, [1], [0]),
        *itertools.product(ON_DISK, [3], [2]),
    ],
)
def test_failures_change_nothing_wherever_they_come(backend: str, parallelism: int, seed: int) -> None:
    got = _run(backend, parallelism, _failing(seed), seed)
    assert difference(told(got), truth(COUNT)) == {}
    assert 0 < len(got["late"]) < COUNT // 5


@pytest.mark.parametrize(
    ("backend", "parallelism", "seed"),
    [*itertools.product(IN_MEMORY, [1, 3], range(2)), *itertools.product(ON_DISK, [3], [1])],
)
def test_failures_change_nothing_when_cuts_are_unaligned(backend: str, parallelism: int, seed: int) -> None:
    got = _run(backend, parallelism, _failing(seed), seed, unaligned=True)
    assert difference(told(got), truth(COUNT)) == {}


@pytest.mark.parametrize("backend", IN_MEMORY)
def test_timers_of_the_clock_fire_in_between_and_not_only_at_the_end(backend: str) -> None:
    got = _run(backend, 2, _failing(seed=3), seed=3)
    assert not all(row.at_the_end for row in got["by_the_clock"])
    for name in CLOCK_WINDOWS:
        assert len({row.window_start for row in got[name]}) > 1
    assert any(row.early for row in got["session"])


def test_late_records_change_windows_that_were_told() -> None:
    told_of = Counter(
        (row.customer, row.window_start) for row in _run("memory", 1, _failing(seed=3), seed=3)["in_time"]
    )
    assert max(told_of.values()) > 1


def test_what_is_forgotten_after_a_while_was_counted_before() -> None:
    visits = _run("memory", 1, _failing(seed=3), seed=3)["visits"]
    assert any(row.lately == 1 and row.number > 1 for row in visits)
    assert any(row.lately > 1 for row in visits)


def test_whatever_is_missing_or_too_much_is_noticed() -> None:
    got = _run("memory", 1, _failing(seed=3), seed=3)
    assert got.keys() == RESULTS
    right = truth(COUNT)
    assert difference(told(got), right) == {}
    for name, rows in got.items():
        wrong = "in_time" if name == "late" else name  # a record is in one of the two
        for changed in ([], rows[1:], [*rows, rows[-1]]):
            assert wrong in difference(told({**got, name: changed}), right)
    found = told(got)
    for name in found:
        assert difference({each: rows for each, rows in found.items() if each != name}, right).keys() == {name}
        assert difference(found, {each: rows for each, rows in right.items() if each != name}).keys() == {name}
