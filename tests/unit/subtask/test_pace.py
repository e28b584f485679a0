"""How long a slice is: careful when it is the rows that take the time, and only then."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.subtask.pace import PATIENCE, Pace

TARGET = 0.02


def test_a_very_slow_slice_shortens_the_next_at_once() -> None:
    pace = Pace(TARGET, 100_000, first_rows=1024)
    pace.observe(1024, 2.0)
    assert pace.rows == 10


def test_growth_is_twofold() -> None:
    pace = Pace(TARGET, 100_000, first_rows=1024)
    pace.observe(1024, 0.0001)
    assert pace.rows == 2048


def test_a_short_slice_says_nothing_about_a_long_one() -> None:
    pace = Pace(TARGET, 100_000, first_rows=1024)
    pace.observe(3, 0.000001)
    assert pace.rows == 1024
    pace.observe(0, 5.0)
    assert pace.rows == 1024


def test_single_slow_slices_are_taken_for_a_busy_machine_and_many_for_the_rows() -> None:
    pace = Pace(TARGET, 100_000, first_rows=1024)
    for _ in range(20):
        pace.observe(1024, 0.04)
        pace.observe(1024, 0.015)
    assert pace.rows == 1024
    for _ in range(PATIENCE):
        pace.observe(1024, 0.04)
    assert pace.rows == 512


@pytest.mark.parametrize("per_row", [0.01, 0.1, 1.0])
def test_the_first_slices_of_slow_rows_are_few_rows(per_row: float) -> None:
    """A trigger that comes with the first rows waits for them."""
    pace, longest = Pace(TARGET, 131_072), 0.0
    for _ in range(200):
        longest = max(longest, pace.rows * per_row)
        pace.observe(pace.rows, pace.rows * per_row)
    assert longest <= max(TARGET, 2 * per_row)
    assert pace.rows == max(1, int(TARGET / per_row))


def test_rows_that_are_fast_are_many_soon() -> None:
    pace = Pace(TARGET, 131_072)
    for _ in range(17):
        pace.observe(pace.rows, pace.rows * 1e-8)
    assert pace.rows == 131_072


@pytest.mark.parametrize("per_batch", [0.004, 0.025, 0.1, 1.0])
def test_a_batch_that_costs_much_whatever_its_size_has_many_rows_soon(per_batch: float) -> None:
    """From a single row on: one that is slow says nothing of the next."""
    pace = Pace(TARGET, 131_072)
    for _ in range(11):
        pace.observe(pace.rows, per_batch + pace.rows * 5e-6)
    assert pace.rows >= 1024


@pytest.mark.parametrize("per_row", [1e-7, 3e-6, 1e-4, 3e-3])
def test_slices_of_rows_that_take_their_time_come_to_the_target(per_row: float) -> None:
    pace = Pace(TARGET, 131_072)
    for _ in range(200):
        pace.observe(pace.rows, pace.rows * per_row)
    assert pace.rows * per_row <= TARGET
    assert pace.rows * per_row >= TARGET / 4 or pace.rows == 131_072


@pytest.mark.parametrize("per_batch", [0.004, 0.019, 0.025, 0.1])
def test_what_a_batch_costs_whatever_its_size_does_not_make_slices_ever_shorter(per_batch: float) -> None:
    pace, per_row = Pace(TARGET, 131_072), 5e-6
    for _ in range(1000):
        pace.observe(pace.rows, per_batch + pace.rows * per_row)
    assert pace.rows * per_row >= min(per_batch / 4, TARGET / 8)
    assert per_batch + pace.rows * per_row <= max(TARGET, 4 * per_batch)


def test_rows_that_become_slow_later_are_fewer_also_where_that_had_not_helped_before() -> None:
    pace = Pace(TARGET, 131_072)
    for _ in range(300):
        pace.observe(pace.rows, 0.025 + pace.rows * 5e-6)
    for _ in range(300):
        pace.observe(pace.rows, pace.rows * 1e-3)
    assert pace.rows <= 20


def test_a_machine_that_is_busy_with_other_things_does_not_make_batches_small() -> None:
    chance = random.Random(1)
    pace, sizes = Pace(TARGET, 131_072), []
    for _ in range(2000):
        waited = chance.expovariate(1 / 0.02)
        pace.observe(pace.rows, 0.003 + pace.rows * 3e-6 + waited)
        sizes.append(pace.rows)
    assert sorted(sizes)[200] >= 256
    assert sorted(sizes)[1000] >= 1024


@given(st.lists(st.tuples(st.integers(0, 5000), st.just(0.0) | st.floats(1e-9, 10)), max_size=60), st.integers(1, 4000))
def test_the_length_stays_between_one_and_the_most(slices: list[tuple[int, float]], most: int) -> None:
    pace = Pace(TARGET, most)
    for rows, seconds in slices:
        pace.observe(rows, seconds)
        assert 1 <= pace.rows <= most
