"""The longest hole of a window, at its edges too."""

import numpy as np

from bench.ours.pause import Window


def hole_ms(*moments_ms: float) -> float:
    """Of one subtask, in a window of a hundred milliseconds that begins at 1000."""
    window = Window(checkpoints=True, began=1_000_000, ended=1_100_000, cpu=0.0, taken=[])
    log = np.array([[int(moment * 1000), 1] for moment in moments_ms], np.int64).reshape(-1, 2)
    steady = np.array([[moment, 1] for moment in range(1_000_000, 1_100_000, 1000)], np.int64)
    return window.longest_hole_ms([steady, log])


def test_between_two_batches() -> None:
    assert hole_ms(1000, 1020, 1050, 1080) == 30


def test_up_to_the_windows_end_and_from_its_beginning() -> None:
    assert hole_ms(1000, 1010) == 90
    assert hole_ms(990, 1060, 1090) == 60


def test_a_subtask_that_is_silent_all_the_while_is_a_hole_of_the_whole_window() -> None:
    assert hole_ms() == 100
    assert hole_ms(900, 1200) == 100
