"""The aligned machine, transition by transition (rules 9, 13, 18, 20)."""

from cutwater.barrier.alignment import WaitingForFirstBarrier, WaitingForRemainingBarriers
from cutwater.barrier.effects import AbandonAlignment, CutHere, HoldChannel, ReleaseChannels
from cutwater.flow.ids import ChannelId, CheckpointId

A, B = ChannelId(0), ChannelId(1)
ONE, TWO = CheckpointId(1), CheckpointId(2)
BOTH = WaitingForFirstBarrier(frozenset({A, B}))


def test_the_first_barrier_holds_its_channel() -> None:
    state, effects = BOTH.barrier_arrived(A, ONE)
    assert isinstance(state, WaitingForRemainingBarriers)
    assert state.aligning == ONE
    assert effects == (HoldChannel(A),)


def test_the_last_barrier_cuts_and_then_releases() -> None:
    state, _ = BOTH.barrier_arrived(A, ONE)
    state, effects = state.barrier_arrived(B, ONE)
    assert effects == (CutHere(ONE), ReleaseChannels(frozenset({A, B})))
    assert state == WaitingForFirstBarrier(frozenset({A, B}), settled=ONE)


def test_a_single_channel_cuts_at_once() -> None:
    _, effects = WaitingForFirstBarrier(frozenset({A})).barrier_arrived(A, ONE)
    assert effects == (CutHere(ONE), ReleaseChannels(frozenset({A})))


def test_a_barrier_of_an_id_that_was_cut_or_aborted_changes_nothing() -> None:
    cut = WaitingForFirstBarrier(frozenset({A, B}), settled=TWO)
    assert cut.barrier_arrived(A, ONE) == (cut, ())
    assert cut.barrier_arrived(A, TWO) == (cut, ())
    aborted, _ = BOTH.checkpoint_aborted(TWO)
    assert aborted.barrier_arrived(A, TWO) == (aborted, ())


def test_an_abort_releases_what_the_checkpoint_holds_at_once() -> None:
    state, _ = BOTH.barrier_arrived(A, ONE)
    state, effects = state.checkpoint_aborted(ONE)
    assert effects == (ReleaseChannels(frozenset({A})),)
    assert state.barrier_arrived(B, ONE) == (state, ())


def test_an_abort_of_another_checkpoint_does_not_touch_the_alignment_but_is_remembered() -> None:
    aligning, _ = BOTH.barrier_arrived(A, ONE)
    state, effects = aligning.checkpoint_aborted(TWO)
    assert effects == ()
    assert state.aligning == ONE
    state, _ = state.barrier_arrived(B, ONE)
    assert state.barrier_arrived(A, TWO) == (state, ())


def test_a_newer_barrier_abandons_the_older_alignment_and_releases_it() -> None:
    state, _ = BOTH.barrier_arrived(A, ONE)
    state, effects = state.barrier_arrived(B, TWO)
    assert state.aligning == TWO
    assert effects[0] == AbandonAlignment(ONE, "checkpoint 2 overtook it")
    assert effects[1:] == (HoldChannel(B), ReleaseChannels(frozenset({A})))
    assert state.barrier_arrived(A, ONE) == (state, ())


def test_an_ended_channel_counts_as_having_delivered_every_barrier() -> None:
    state, _ = BOTH.barrier_arrived(A, ONE)
    state, effects = state.channel_ended(B)
    assert effects == (CutHere(ONE), ReleaseChannels(frozenset({A})))
    _, effects = state.barrier_arrived(A, TWO)
    assert effects == (CutHere(TWO), ReleaseChannels(frozenset({A})))


def test_the_end_of_a_channel_outside_an_alignment_does_nothing() -> None:
    state, effects = BOTH.channel_ended(A)
    assert effects == ()
    assert state == WaitingForFirstBarrier(frozenset({B}))


def test_what_is_settled_is_forgotten_from_the_aborted() -> None:
    state, _ = BOTH.checkpoint_aborted(ONE)
    state, _ = state.barrier_arrived(A, TWO)
    state, _ = state.barrier_arrived(B, TWO)
    assert state == WaitingForFirstBarrier(frozenset({A, B}), settled=TWO)
    assert state.checkpoint_aborted(ONE) == (state, ())
