"""How much a slice makes: as much as leaves soon."""

import pytest

from cutwater.subtask.outflow import Outflow

MOST_ROWS = 131_072


def new(most_bytes: int = 1 << 20) -> Outflow:
    return Outflow(most_bytes, 0.1, MOST_ROWS)


def test_nothing_is_held_back_before_anything_is_known() -> None:
    assert new().rows == MOST_ROWS


@pytest.mark.parametrize("row_bytes", [16, 4096, 3_000_000])
def test_a_slice_makes_no_more_than_its_bytes_and_at_least_of_one_row(row_bytes: int) -> None:
    flow = new()
    flow.made(100, 100 * row_bytes)
    assert flow.rows == max(1, min(MOST_ROWS, (1 << 20) // row_bytes))


def test_what_is_combined_and_leaves_at_once_is_spread_over_the_slices_that_made_it() -> None:
    flow = new()
    rows = []
    for slice_number in range(200):
        flow.made(1000, 1_000_000 if slice_number % 10 == 9 else 0)
        rows.append(flow.rows)
    assert min(rows[50:]) > 3000, "a hundred bytes a row: a slice of ten thousand would do"
    assert max(rows[50:]) < 30_000


def test_nothing_is_held_back_however_long_nothing_was_made() -> None:
    flow = new()
    flow.made(1000, 1_000_000_000)
    rows = []
    for _ in range(10_000):
        flow.made(1000, 0)
        rows.append(flow.rows)
    assert rows == sorted(rows)
    assert rows[-1] == MOST_ROWS


def test_output_that_leaves_slowly_makes_the_next_slice_as_small_as_leaves_in_time() -> None:
    flow = new()
    flow.made(1000, 100)
    flow.left(2.0)
    assert flow.rows == 50


def test_when_it_leaves_quickly_again_slices_grow_twofold_to_their_full_size() -> None:
    flow = new()
    flow.made(1000, 100)
    flow.left(2.0)
    grown = []
    for _ in range(20):
        flow.left(0.001)
        grown.append(flow.rows)
    assert grown[:3] == [100, 200, 400]
    assert grown[-1] == MOST_ROWS


def test_between_quick_and_slow_it_stays() -> None:
    flow = new()
    flow.made(1000, 100)
    flow.left(2.0)
    flow.left(0.07)
    assert flow.rows == 50


def test_slices_that_fill_a_payload_together_do_not_become_ever_smaller() -> None:
    """However small they are, it leaves when it is full, and takes its time."""
    flow, rows_in_payload = new(), 60
    for _ in range(50):
        made = 0
        while made < rows_in_payload:
            made += flow.rows
            flow.made(flow.rows, 4096 * flow.rows)
        flow.left(0.2 * made / rows_in_payload)
    assert flow.rows >= rows_in_payload // 4
