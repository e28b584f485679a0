"""How many bytes may wait, by how fast they flow."""

import math

from cutwater.subtask.flow_rate import FlowRate


def flowing(bytes_per_second: float, seconds: float, rate: FlowRate, since: float = 0.0) -> float:
    """One piece every 10 ms; returns when the last one flowed."""
    now = since
    for step in range(int(seconds * 100)):
        now = since + (step + 1) / 100
        rate.add(int(bytes_per_second / 100), now)
    return now


def allowed(rate: FlowRate) -> int:
    return rate.bytes_in(0.1, least=1000, most=1_000_000)


def test_all_may_wait_as_long_as_nobody_knows() -> None:
    rate = FlowRate()
    assert allowed(rate) == 1_000_000
    rate.add(10, 5.0)
    assert allowed(rate) == 1_000_000


def test_it_is_what_flows_in_that_time() -> None:
    rate = FlowRate()
    flowing(2_000_000, 10, rate)
    assert 190_000 < allowed(rate) < 210_000


def test_neither_more_nor_less_than_the_bounds() -> None:
    slow, fast = FlowRate(), FlowRate()
    flowing(200, 10, slow)
    flowing(1e9, 10, fast)
    assert (allowed(slow), allowed(fast)) == (1000, 1_000_000)


def test_a_short_stop_or_burst_changes_little_and_a_lasting_one_all() -> None:
    rate = FlowRate()
    now = flowing(2_000_000, 10, rate)
    rate.add(1, now := now + 0.3)
    assert allowed(rate) > 150_000
    now = flowing(8_000_000, 0.3, rate, now)
    assert allowed(rate) < 350_000
    flowing(8_000_000, 20, rate, now)
    assert allowed(rate) > 750_000


def test_without_a_bound_in_time_only_that_of_the_bytes_counts() -> None:
    rate = FlowRate()
    for second in range(3):
        rate.add(1000, float(second))
    assert rate.bytes_in(math.inf, least=1, most=5) == 5
