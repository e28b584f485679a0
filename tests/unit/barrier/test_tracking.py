"""At least once: barriers are counted, nothing is held."""

from cutwater.barrier.effects import CutHere
from cutwater.barrier.tracking import BarrierTracking
from cutwater.flow.ids import ChannelId, CheckpointId

A, B = ChannelId(0), ChannelId(1)
ONE, TWO = CheckpointId(1), CheckpointId(2)
BOTH = BarrierTracking(frozenset({A, B}))


def test_nothing_is_held_and_the_last_barrier_cuts() -> None:
    state, effects = BOTH.barrier_arrived(A, ONE)
    assert effects == ()
    assert state.aligning == ONE
    state, effects = state.barrier_arrived(B, ONE)
    assert effects == (CutHere(ONE),)
    assert state.aligning is None


def test_several_checkpoints_may_be_open_and_are_cut_in_order() -> None:
    state, _ = BOTH.barrier_arrived(A, ONE)
    state, _ = state.barrier_arrived(A, TWO)
    state, effects = state.channel_ended(B)
    assert effects == (CutHere(ONE), CutHere(TWO))
    assert state.settled == TWO


def test_a_newer_cut_settles_an_older_one_that_a_channel_skipped() -> None:
    state, _ = BOTH.barrier_arrived(A, ONE)
    state, _ = state.barrier_arrived(A, TWO)
    state, effects = state.barrier_arrived(B, TWO)
    assert effects == (CutHere(TWO),)
    assert state.barrier_arrived(B, ONE) == (state, ())


def test_a_late_or_aborted_barrier_changes_nothing() -> None:
    state, _ = BOTH.barrier_arrived(A, ONE)
    state, effects = state.checkpoint_aborted(ONE)
    assert effects == ()
    assert state.aligning is None
    assert state.barrier_arrived(B, ONE) == (state, ())
    cut = BarrierTracking(frozenset({A, B}), settled=TWO)
    assert cut.barrier_arrived(A, TWO) == (cut, ())
    assert cut.checkpoint_aborted(ONE) == (cut, ())


def test_a_repeated_barrier_counts_once() -> None:
    state, _ = BOTH.barrier_arrived(A, ONE)
    again, effects = state.barrier_arrived(A, ONE)
    assert (again, effects) == (state, ())
