"""How long a slice is: careful at once, bold slowly."""

from hypothesis import given
from hypothesis import strategies as st

from cutwater.subtask.pace import Pace


def test_one_slow_slice_shortens_the_next_at_once() -> None:
    pace = Pace(0.02, 100_000)
    pace.observe(1024, 2.0)
    assert pace.rows == 10


def test_growth_is_at_most_twofold() -> None:
    pace = Pace(0.02, 100_000)
    pace.observe(1024, 0.0001)
    assert pace.rows == 2048


def test_a_short_slice_says_nothing_about_a_long_one() -> None:
    pace = Pace(0.02, 100_000)
    pace.observe(3, 0.000001)
    assert pace.rows == 1024
    pace.observe(0, 5.0)
    assert pace.rows == 1024


@given(st.lists(st.tuples(st.integers(0, 5000), st.just(0.0) | st.floats(1e-9, 10)), max_size=30), st.integers(1, 4000))
def test_the_length_stays_between_one_and_the_most(slices: list[tuple[int, float]], most: int) -> None:
    pace = Pace(0.02, most)
    for rows, seconds in slices:
        pace.observe(rows, seconds)
        assert 1 <= pace.rows <= most
