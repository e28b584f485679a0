"""A batch's turn: it ends between two rows, when it has taken its time."""

from cutwater.operators.turn import ROWS_AT_ONCE, Turn


def test_a_turn_ends_between_two_rows_and_says_how_many_are_left() -> None:
    now = 0.0
    turn = Turn(lambda: now, 1.0)
    taken = []
    for row in turn.of(iter(range(100)), 100):
        taken.append(row)
        now += 0.03
    assert taken == list(range(3 * ROWS_AT_ONCE))
    assert turn.end() == 100 - 3 * ROWS_AT_ONCE


def test_what_is_read_for_a_batch_before_its_first_row_is_a_part_of_its_turn() -> None:
    now = 0.0
    turn = Turn(lambda: now, 1.0)
    rows = turn.of(iter(range(100)), 100)
    now += 5.0
    assert len(list(rows)) == ROWS_AT_ONCE
    assert turn.end() == 100 - ROWS_AT_ONCE
