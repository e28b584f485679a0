"""The longest time the loop did not look up, and when that is worth a word."""

from cutwater.subtask.gap import SLOW_SECONDS, LoopGap


def test_the_longest_slice_is_kept_until_it_was_taken() -> None:
    gap = LoopGap()
    for began, ended in ((0.0, 0.25), (1.0, 3.0), (4.0, 4.5)):
        gap.enter(began)
        assert gap.leave(ended) == ended - began
    assert gap.take() == 2.0
    assert gap.take() == 0.0


def test_a_slow_slice_is_told_once_and_only_while_it_lasts() -> None:
    gap = LoopGap()
    assert gap.newly_slow(100.0) is None, "the loop rests"
    gap.enter(100.0)
    assert gap.newly_slow(100.0 + SLOW_SECONDS - 0.1) is None
    assert gap.newly_slow(100.0 + SLOW_SECONDS) == SLOW_SECONDS
    assert gap.newly_slow(100.0 + 2 * SLOW_SECONDS) is None
    gap.leave(200.0)
    assert gap.newly_slow(300.0) is None
    gap.enter(300.0)
    assert gap.newly_slow(301.0 + SLOW_SECONDS) is not None, "the next one is told anew"
