from hypothesis import given
from hypothesis import strategies as st

from cutwater.checkpoint.retention import choose_leftovers, choose_retired
from cutwater.checkpoint.statistics import CheckpointHistory
from cutwater.flow.ids import CheckpointId


def ids(*numbers: int) -> list[CheckpointId]:
    return [CheckpointId(number) for number in numbers]


def test_the_oldest_go_first_and_as_many_stay_as_asked() -> None:
    assert choose_retired(ids(4, 1, 3, 2), at_most=2) == (1, 2)
    assert choose_retired(ids(1), at_most=2) == ()


def test_the_latest_stays_even_if_none_is_asked_for() -> None:
    assert choose_retired(ids(1, 2), at_most=0) == (1,)


def test_what_is_set_aside_takes_no_place_and_goes_when_enough_newer_ones_are_there() -> None:
    damaged = ids(5)
    assert choose_retired(ids(3, 4, 6), set_aside=damaged, at_most=2) == (3,)
    assert choose_retired(ids(4, 6, 7), set_aside=damaged, at_most=2) == (4, 5)


def test_what_is_set_aside_stays_while_fewer_are_retained_than_asked_for() -> None:
    assert choose_retired(ids(11), set_aside=ids(9, 10), at_most=2) == ()
    assert choose_retired(ids(11, 12), set_aside=ids(9, 10), at_most=2) == (9, 10)


@given(st.sets(st.integers(1, 40)), st.sets(st.integers(1, 40)), st.integers(1, 5))
def test_retention_keeps_the_newest_and_all_that_is_newer(there: set[int], aside: set[int], at_most: int) -> None:
    aside -= there
    retired = choose_retired(ids(*there), set_aside=ids(*aside), at_most=at_most)
    assert sorted(there - set(retired)) == sorted(there)[-at_most:]
    assert list(retired) == sorted(retired)
    assert all(len([each for each in there if each > gone]) >= at_most for gone in retired)


def test_a_damaged_checkpoint_does_not_take_the_place_of_a_good_one() -> None:
    history = CheckpointHistory(retained=ids(3, 4, 5))
    history.adopt(ids(3, 4, 5), set_aside=ids(5))
    assert history.retained == (3, 4)
    assert history.keep(CheckpointId(6), at_most=2) == (3,)
    assert history.retained == (4, 6)
    history.adopt(ids(4, 5, 6))  # the next attempt, which did not look at 5 again
    assert history.keep(CheckpointId(7), at_most=2) == (4, 5)
    assert history.keep(CheckpointId(8), at_most=2) == (6,)


def test_files_without_metadata_go_only_if_no_living_attempt_writes_them() -> None:
    assert choose_leftovers(ids(1, 2, 3, 4), ids(1), CheckpointId(3)) == (2, 3)
