from itertools import count

import pytest

from cutwater.spark import executors
from cutwater.spark.executors import FIRST_SECONDS, REGISTRATION_SECONDS, await_slots


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "LOOK_SECONDS", 0.0)


def test_a_young_session_is_waited_for_until_it_has_slots_enough() -> None:
    slots, ages = iter([0, 4, 4, 8]), iter([1.0, 2.0, 3.0])
    await_slots(lambda: next(slots), 8, lambda: next(ages))
    assert list(slots) == []


def test_nobody_waits_for_an_old_session_that_is_too_small() -> None:
    looked = count(1)
    await_slots(lambda: min(next(looked), 4), 8, lambda: REGISTRATION_SECONDS + 1)
    assert next(looked) == 2


def test_a_session_that_never_grows_is_left_when_it_is_old() -> None:
    ages = iter([28.0, 29.0, 30.0])
    await_slots(lambda: 4, 8, lambda: next(ages))
    assert list(ages) == []


def test_a_session_without_any_executor_is_waited_for_longer() -> None:
    slots, ages = iter([0, 0, 0, 4]), iter([REGISTRATION_SECONDS, FIRST_SECONDS - 1, FIRST_SECONDS])
    await_slots(lambda: next(slots), 8, lambda: next(ages))
    assert list(slots) == [4], "until then"
