"""How long an attempt waits for its subtasks."""

from cutwater.spark.roll_call import HELLO_SECONDS, RollCall


def test_nobody_reporting_in_for_long_is_hopeless() -> None:
    roll_call = RollCall(expected=3, now=100.0)
    assert not roll_call.is_hopeless(100.0 + HELLO_SECONDS)
    assert roll_call.is_hopeless(101.0 + HELLO_SECONDS)


def test_workers_that_come_slowly_but_come_are_waited_for() -> None:
    roll_call = RollCall(expected=400, now=0.0)
    for here in range(1, 400):
        now = here * HELLO_SECONDS / 2
        roll_call.count(here, now)
        roll_call.count(here, now + 1)
        assert not roll_call.is_hopeless(now + HELLO_SECONDS - 1)
    assert roll_call.is_hopeless(now + HELLO_SECONDS + 1), "the last one never came"


def test_when_all_are_here_nothing_is_waited_for() -> None:
    roll_call = RollCall(expected=2, now=0.0)
    assert str(roll_call) == "2 of 2 workers have not started yet"
    roll_call.count(1, 1.0)
    assert str(roll_call) == "1 of 2 workers have not started yet"
    roll_call.count(2, 2.0)
    assert str(roll_call) == ""
    assert not roll_call.is_hopeless(10 * HELLO_SECONDS)
