from datetime import timedelta

import pytest

from cutwater.errors import ConfigError
from cutwater.restart import (
    AttemptFailure,
    GiveUp,
    RestartAfter,
    exponential_delay,
    failure_rate,
    fixed_delay,
    no_restart,
)


def middle() -> float:
    return 0.5


def failures(*times: float, ran: float = 1.0) -> list[AttemptFailure]:
    return [AttemptFailure(time - ran, time) for time in times]


def seconds(decision) -> float:
    assert isinstance(decision, RestartAfter), decision
    return decision.delay.total_seconds()


def test_fixed_delay_restarts_as_often_as_it_says_and_then_gives_up():
    strategy = fixed_delay(attempts=2, delay="3s")
    assert seconds(strategy.next_restart(failures(1), 1, middle)) == 3
    assert seconds(strategy.next_restart(failures(1, 5), 5, middle)) == 3
    decision = strategy.next_restart(failures(1, 5, 9), 9, middle)
    assert isinstance(decision, GiveUp)
    assert "2 restarts" in decision.reason


def test_no_restart_gives_up_at_the_first_failure():
    assert isinstance(no_restart().next_restart(failures(1), 1, middle), GiveUp)


def test_exponential_delay_grows_up_to_its_maximum():
    strategy = exponential_delay(initial="1s", max="10s", multiplier=3, jitter=0)
    delays = [seconds(strategy.next_restart(failures(*range(n)), n, middle)) for n in range(1, 6)]
    assert delays == [1, 3, 9, 10, 10]


def test_exponential_delay_survives_a_night_of_failures():
    strategy = exponential_delay(max="1h", multiplier=10, jitter=0)
    assert seconds(strategy.next_restart(failures(*range(100_000)), 100_000, middle)) == 3600


def test_exponential_delay_with_multiplier_one_stays_constant():
    strategy = exponential_delay(initial="2s", max="2s", multiplier=1, jitter=0)
    assert seconds(strategy.next_restart(failures(1, 2, 3), 3, middle)) == 2


def test_exponential_delay_starts_over_after_a_long_good_run():
    strategy = exponential_delay(initial="1s", max="1 min", jitter=0, reset_after="100s")
    bad = failures(1, 2, 3)
    assert seconds(strategy.next_restart([*bad, AttemptFailure(10, 109)], 109, middle)) == 8
    assert seconds(strategy.next_restart([*bad, AttemptFailure(10, 110)], 110, middle)) == 1
    assert seconds(strategy.next_restart([*bad, AttemptFailure(10, 110), AttemptFailure(111, 112)], 112, middle)) == 2


def test_an_attempt_that_never_ran_is_no_good_run():
    strategy = exponential_delay(initial="1s", jitter=0, reset_after="1s")
    assert seconds(strategy.next_restart([AttemptFailure(None, 1), AttemptFailure(None, 1000)], 1000, middle)) == 2


def test_jitter_spreads_the_delay_both_ways_and_never_past_the_maximum():
    strategy = exponential_delay(initial="10s", max="10.5s", jitter=0.1)
    assert seconds(strategy.next_restart(failures(1), 1, lambda: 0.0)) == 9
    assert seconds(strategy.next_restart(failures(1), 1, middle)) == 10
    assert seconds(strategy.next_restart(failures(1), 1, lambda: 0.999)) == 10.5


def test_failure_rate_forgets_failures_that_are_long_past():
    strategy = failure_rate(max_failures=2, per="10s", delay="1s")
    assert seconds(strategy.next_restart(failures(1, 2), 2, middle)) == 1
    assert isinstance(strategy.next_restart(failures(1, 2, 10.9), 10.9, middle), GiveUp)
    assert seconds(strategy.next_restart(failures(1, 2, 11), 11, middle)) == 1


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: fixed_delay(attempts=0), "attempts=0"),
        (lambda: fixed_delay(attempts=True), "attempts=True"),
        (lambda: fixed_delay(attempts=2.5), "attempts=2.5"),
        (lambda: fixed_delay(delay=1), "delay=1"),
        (lambda: fixed_delay(delay=timedelta(seconds=-1)), "delay="),
        (lambda: exponential_delay(initial="0s"), "initial='0s'"),
        (lambda: exponential_delay(initial="2 min", max="1 min"), "max='1 min'"),
        (lambda: exponential_delay(multiplier=0.5), "multiplier=0.5"),
        (lambda: exponential_delay(multiplier=float("nan")), "multiplier=nan"),
        (lambda: exponential_delay(jitter=1.5), "jitter=1.5"),
        (lambda: exponential_delay(jitter="a lot"), "jitter='a lot'"),
        (lambda: exponential_delay(reset_after="soon"), "reset_after='soon'"),
        (lambda: failure_rate(max_failures=-1), "max_failures=-1"),
        (lambda: failure_rate(per="0s"), "per='0s'"),
    ],
)
def test_a_wrong_argument_is_refused_at_the_call_by_name_and_value(make, named):
    with pytest.raises(ConfigError) as refused:
        make()
    assert named in str(refused.value)


def test_a_zero_delay_is_allowed():
    assert fixed_delay(attempts=1, delay="0s").delay == timedelta(0)
