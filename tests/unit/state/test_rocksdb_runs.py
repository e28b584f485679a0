"""When the runs of a state in RocksDB are joined."""

import math

import pytest

from cutwater.state.rocksdb_runs import EARLY, LATE, Joining, joining_of, runs_of


@pytest.mark.parametrize(
    ("runs", "whole", "joining"),
    [
        ([], math.inf, LATE),
        ([], 0, LATE),
        ([5] * 8, math.inf, LATE),
        ([100], 0, LATE),
        ([1] * 20 + [100], 0, LATE),
        ([100, 100, 100], 0, LATE),
        ([100, 1, 100, 100], 0, EARLY),
        ([10, 20] * 7 + [100], 0, EARLY),
        ([3] * 10 + [25, 25, 25, 25], 100, LATE),
        ([50] * 5 + [25, 25, 25, 25], 100, EARLY),
    ],
)
def test_many_runs_are_left_as_they_are_until_they_hold_much_more_than_the_state(
    runs: list[int], whole: float, joining: Joining
) -> None:
    assert joining_of(runs, whole) is joining


def test_files_of_a_deeper_level_are_one_run() -> None:
    files = """ --- level 0 --- version# 4 ---
 17:1061[1 .. 1]['7861' seq:1, type:1 .. '7861' seq:1, type:1](0)
 11:20[1 .. 1]['7861' seq:1, type:1 .. '7861' seq:1, type:1](0)
--- level 1 --- version# 4 ---
--- level 6 --- version# 4 ---
 12:300[1 .. 1]['7861' seq:1, type:1 .. '7861' seq:1, type:1](0)
 13:4000[1 .. 1]['7861' seq:1, type:1 .. '7861' seq:1, type:1](0)
"""
    assert runs_of(files) == [1061, 20, 4300]
    assert runs_of("") == []
