"""A driver that stood still knows it afterwards."""

from cutwater.spark.pulse import Pulse


def test_a_driver_that_was_frozen_for_longer_than_a_lease_says_for_how_long() -> None:
    pulse = Pulse(lease=10.0)
    for now in (0.0, 0.1, 0.2):
        pulse.beat(now)
    assert pulse.frozen_for(0.25) is None
    assert pulse.frozen_for(25.2) == 25.0  # still in the round that it was frozen in
    pulse.beat(25.2)
    pulse.beat(25.3)
    assert pulse.frozen_for(25.4) == 25.0


def test_what_happens_long_after_it_is_not_blamed_on_it() -> None:
    pulse = Pulse(lease=10.0)
    pulse.beat(0.0)
    for tenth in range(111):
        pulse.beat(20.0 + tenth / 10)
    assert pulse.frozen_for(29.9) == 20.0
    assert pulse.frozen_for(31.1) is None
