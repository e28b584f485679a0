import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.errors import ConfigError
from cutwater.flow.key_groups import KeyGroupRange, default_max_parallelism, key_group_range, subtask_of_group

PARALLELISMS = st.integers(1, 500).flatmap(lambda p: st.tuples(st.just(p), st.integers(p, 2000)))


@given(PARALLELISMS)
def test_ranges_of_all_subtasks_partition_the_key_groups(pair: tuple[int, int]) -> None:
    parallelism, max_parallelism = pair
    ranges = [key_group_range(i, parallelism, max_parallelism) for i in range(parallelism)]
    owned = [group for r in ranges for group in range(r.first, r.last + 1)]
    assert owned == list(range(max_parallelism))
    assert all(len(r) >= 1 for r in ranges)


@given(PARALLELISMS)
def test_the_owner_of_a_group_is_the_subtask_whose_range_holds_it(pair: tuple[int, int]) -> None:
    parallelism, max_parallelism = pair
    ranges = [key_group_range(i, parallelism, max_parallelism) for i in range(parallelism)]
    for group in range(max_parallelism):
        assert group in ranges[subtask_of_group(group, parallelism, max_parallelism)]


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [(1, 128), (85, 128), (86, 256), (128, 256), (200, 512), (20_000, 32768), (40_000, 32768)],
)
def test_default_max_parallelism_is_the_next_power_of_two_of_half_as_much_again(
    parallelism: int, expected: int
) -> None:
    assert default_max_parallelism(parallelism) == expected


def test_three_subtasks_of_eight_groups() -> None:
    assert [key_group_range(i, 3, 8) for i in range(3)] == [
        KeyGroupRange(0, 2),
        KeyGroupRange(3, 5),
        KeyGroupRange(6, 7),
    ]


def test_more_subtasks_than_groups_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match="parallelism=9 is higher than max_parallelism=8"):
        key_group_range(0, 9, 8)
