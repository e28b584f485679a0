"""The machine of unaligned cuts: transition by transition, then under every interleaving (rules 9, 14, 15, 17, 18, 20)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement, product

import pytest

from cutwater.barrier.alignment import WaitingForFirstBarrier
from cutwater.barrier.effects import (
    AbandonAlignment,
    CancelCut,
    CutAtOnce,
    CutHere,
    DropRecording,
    FinishRecording,
    HoldChannel,
    ReleaseChannels,
)
from cutwater.barrier.unaligned import Aligning, Overtaking, WaitingForChannels, WaitingForCut
from cutwater.flow.ids import ChannelId, CheckpointId

A, B = ChannelId(0), ChannelId(1)
ONE, TWO = CheckpointId(1), CheckpointId(2)
IDLE = WaitingForFirstBarrier(frozenset({A, B}))
BOTH = Aligning(IDLE)


def test_a_trigger_cuts_at_once_and_opens_the_gate() -> None:
    state, effects = BOTH.cut_requested(ONE)
    assert isinstance(state, WaitingForCut)
    assert state.gate_is_open
    assert effects == (CutAtOnce(ONE),)


def test_an_unaligned_barrier_that_comes_first_counts_as_the_trigger() -> None:
    state, effects = BOTH.barrier_arrived(A, ONE, unaligned=True)
    assert state == WaitingForCut(IDLE, ONE, frozenset({A}))
    assert effects == (CutAtOnce(ONE),)
    assert state.cut_requested(ONE) == (state, ())


def test_the_recording_ends_with_the_last_barrier_behind_the_cut() -> None:
    state, _ = BOTH.cut_requested(ONE)
    state, effects = state.barrier_arrived(A, ONE, unaligned=True)
    assert effects == ()
    state, effects = state.cut_taken(ONE)
    assert isinstance(state, WaitingForChannels)
    assert effects == ()
    state, effects = state.barrier_arrived(B, ONE, unaligned=True)
    assert effects == (FinishRecording(ONE),)
    assert state == Aligning(replace(IDLE, settled=ONE))
    assert not state.gate_is_open


def test_when_every_barrier_is_there_before_the_cut_the_recording_ends_with_it() -> None:
    state: Overtaking = BOTH
    for channel in (A, B):
        state, _ = state.barrier_arrived(channel, ONE, unaligned=True)
    assert state.cut_taken(ONE) == (Aligning(replace(IDLE, settled=ONE)), (FinishRecording(ONE),))


def test_a_channel_that_ended_is_not_waited_for() -> None:
    state, _ = BOTH.cut_requested(ONE)
    state, _ = state.channel_ended(A)
    state, _ = state.cut_taken(ONE)
    state, effects = state.channel_ended(B)
    assert effects == (FinishRecording(ONE),)


def test_past_the_timeout_an_alignment_becomes_a_cut_at_once_and_holds_nobody() -> None:
    state, effects = BOTH.barrier_arrived(A, ONE)
    assert effects == (HoldChannel(A),)
    state, effects = state.cut_requested(ONE)
    assert state == WaitingForCut(IDLE, ONE, frozenset({A}))
    assert effects == (CutAtOnce(ONE), ReleaseChannels(frozenset({A})))


def test_past_the_timeout_a_cut_that_waits_in_the_inbox_is_taken_at_once() -> None:
    state: Overtaking = BOTH
    for channel in (A, B):
        state, effects = state.barrier_arrived(channel, ONE)
    assert CutHere(ONE) in effects
    state, effects = state.cut_requested(ONE)
    assert effects == (CutAtOnce(ONE),)
    assert state.cut_taken(ONE)[1] == (FinishRecording(ONE),)


def test_past_the_timeout_a_cut_that_was_taken_stays_taken() -> None:
    state: Overtaking = BOTH
    for channel in (A, B):
        state, _ = state.barrier_arrived(channel, ONE)
    state, _ = state.cut_taken(ONE)
    assert state.cut_requested(ONE) == (state, ())


def test_an_abort_before_the_cut_cancels_it_and_behind_it_drops_the_recording() -> None:
    waiting, _ = BOTH.cut_requested(ONE)
    state, effects = waiting.checkpoint_aborted(ONE)
    assert (state, effects) == (Aligning(replace(IDLE, settled=ONE)), (CancelCut(ONE),))
    recording, _ = waiting.cut_taken(ONE)
    state, effects = recording.checkpoint_aborted(ONE)
    assert (state, effects) == (Aligning(replace(IDLE, settled=ONE)), (DropRecording(ONE),))
    assert state.cut_requested(ONE) == (state, ())
    assert state.barrier_arrived(A, ONE, unaligned=True) == (state, ())


def test_a_newer_checkpoint_drops_the_recording_of_an_older_one() -> None:
    state, _ = BOTH.cut_requested(ONE)
    state, _ = state.cut_taken(ONE)
    state, effects = state.barrier_arrived(A, TWO, unaligned=True)
    assert effects == (DropRecording(ONE), AbandonAlignment(ONE, "checkpoint 2 overtook it"), CutAtOnce(TWO))
    assert isinstance(state, WaitingForCut)
    assert state.delivered == frozenset({A})


def test_a_savepoint_behind_an_unaligned_checkpoint_is_aligned() -> None:
    state, _ = BOTH.cut_requested(ONE)
    state, _ = state.cut_taken(ONE)
    _, effects = state.barrier_arrived(A, TWO)
    assert effects == (DropRecording(ONE), AbandonAlignment(ONE, "checkpoint 2 overtook it"), HoldChannel(A))


# --- every interleaving -----------------------------------------------------------------------------------------------

END = 0
Scripts = tuple[tuple[int, ...], ...]
"""For each channel the barriers that it delivers, in order; negative ones are unaligned."""


@dataclass(frozen=True, slots=True)
class Moment:
    machine: Overtaking
    at: tuple[int, ...]
    held: frozenset[ChannelId] = frozenset()
    queue: tuple[CheckpointId, ...] = ()
    """Cut marks in the inbox."""
    due: CheckpointId | None = None
    recording: CheckpointId | None = None
    cut: tuple[CheckpointId, ...] = ()
    recorded: frozenset[CheckpointId] = frozenset()
    asked: frozenset[CheckpointId] = frozenset()
    aborted: frozenset[CheckpointId] = frozenset()
    abandoned: frozenset[CheckpointId] = frozenset()


def explore(scripts: Scripts, asks: frozenset[CheckpointId], aborts: frozenset[CheckpointId]) -> int:
    first = Moment(
        Aligning(WaitingForFirstBarrier(frozenset(map(ChannelId, range(len(scripts)))))), (0,) * len(scripts)
    )
    seen, waiting = {first}, [first]
    while waiting:
        moment = waiting.pop()
        check(moment, scripts)
        following = list(_following(moment, scripts, asks, aborts))
        if not following:
            check_the_end(moment, scripts)
        waiting.extend(each for each in following if each not in seen)
        seen.update(following)
    return len(seen)


def _following(
    moment: Moment, scripts: Scripts, asks: frozenset[CheckpointId], aborts: frozenset[CheckpointId]
) -> Iterator[Moment]:
    machine = moment.machine
    for index, script in enumerate(scripts):
        channel = ChannelId(index)
        if channel in moment.held or moment.at[index] == len(script):
            continue
        element = script[moment.at[index]]
        at = (*moment.at[:index], moment.at[index] + 1, *moment.at[index + 1 :])
        if element == END:
            yield _after(replace(moment, at=at), *machine.channel_ended(channel))
        else:
            barrier = machine.barrier_arrived(channel, CheckpointId(abs(element)), unaligned=element < 0)
            yield _after(replace(moment, at=at), *barrier)
    for checkpoint in asks - moment.asked:
        yield _after(replace(moment, asked=moment.asked | {checkpoint}), *machine.cut_requested(checkpoint))
    for checkpoint in aborts - moment.aborted:
        gone = replace(moment, aborted=moment.aborted | {checkpoint})
        yield _after(gone, *machine.checkpoint_aborted(checkpoint))
    if moment.due is not None:
        taken = moment.due
        left = tuple(n for n in moment.queue if n > taken)
        cut = replace(moment, due=None, queue=left, recording=taken, cut=(*moment.cut, taken))
        yield _after(cut, *machine.cut_taken(taken))
    elif moment.queue:
        taken, *rest = moment.queue
        yield _after(replace(moment, queue=tuple(rest), cut=(*moment.cut, taken)), *machine.cut_taken(taken))


def _after(moment: Moment, machine: Overtaking, effects: tuple[object, ...]) -> Moment:
    moment = replace(moment, machine=machine)
    for effect in effects:
        match effect:
            case HoldChannel(channel):
                moment = replace(moment, held=moment.held | {channel})
            case ReleaseChannels(channels):
                moment = replace(moment, held=moment.held - channels)
            case CutHere(checkpoint):
                moment = replace(moment, queue=(*moment.queue, checkpoint))
            case CutAtOnce(checkpoint):
                assert moment.due is None, "two cuts are due"
                moment = replace(moment, due=checkpoint)
            case CancelCut(checkpoint):
                assert moment.due == checkpoint, "a cut is cancelled that is not due"
                moment = replace(moment, due=None)
            case FinishRecording(checkpoint):
                assert moment.recording == checkpoint, "a recording ends that nobody began"
                moment = replace(moment, recording=None, recorded=moment.recorded | {checkpoint})
            case DropRecording(checkpoint):
                assert moment.recording == checkpoint, "a recording is dropped that nobody began"
                moment = replace(moment, recording=None)
            case AbandonAlignment(checkpoint, _):
                moment = replace(moment, abandoned=moment.abandoned | {checkpoint})
    return moment


def _delivered(moment: Moment, scripts: Scripts, index: int) -> set[int]:
    return {abs(element) for element in scripts[index][: moment.at[index]]}


def check(moment: Moment, scripts: Scripts) -> None:
    assert list(moment.cut) == sorted(set(moment.cut)), f"cut in the order {moment.cut}"
    assert moment.machine.gate_is_open == (moment.due is not None or moment.recording is not None)
    for gone in moment.aborted:
        assert gone not in (moment.due, moment.recording), f"checkpoint {gone} goes on although it was given up"
    for checkpoint in moment.recorded:
        for index in range(len(scripts)):
            passed = _delivered(moment, scripts, index)
            assert checkpoint in passed or END in passed, f"{checkpoint} was recorded before channel {index} delivered"
    for channel in moment.held:
        assert moment.machine.aligning in _delivered(moment, scripts, channel), "held for a barrier that did not come"
        assert not moment.machine.gate_is_open, "the gate is open and a channel is held"


def check_the_end(moment: Moment, scripts: Scripts) -> None:
    """Nothing more comes: whoever was asked to cut has cut, and what every channel delivered is recorded."""
    assert moment.due is None
    for checkpoint in moment.asked - moment.aborted - moment.abandoned:
        newer = [n for n in (*moment.cut, *moment.aborted) if n > checkpoint]
        assert checkpoint in moment.cut or newer, f"checkpoint {checkpoint} was asked for and never cut"
        if checkpoint == moment.recording:
            passed = [_delivered(moment, scripts, index) for index in range(len(scripts))]
            assert not all(checkpoint in part or END in part for part in passed), "recorded for ever"


def all_scripts(channels: int, checkpoints: int) -> Iterator[Scripts]:
    barriers = range(1, checkpoints + 1)
    chosen = [subset for size in range(checkpoints + 1) for subset in combinations(barriers, size)]
    signed = [tuple(s * n for s, n in zip(signs, subset, strict=True))
              for subset in chosen for signs in product((1, -1), repeat=len(subset))]  # fmt: skip
    return combinations_with_replacement([each + ending for each in signed for ending in ((), (END,))], channels)


BOTH_IDS = frozenset({ONE, TWO})


@pytest.mark.parametrize("aborts", [frozenset(), frozenset({ONE})], ids=["nothing aborted", "the first aborted"])
def test_every_interleaving_keeps_every_promise(aborts: frozenset[CheckpointId]) -> None:
    states = sum(explore(scripts, BOTH_IDS, aborts) for scripts in all_scripts(2, 2))
    assert states > 10_000


def _recorded_without_the_others(self: WaitingForChannels) -> object:
    return Aligning(self.idle.settle(self.checkpoint)), (FinishRecording(self.checkpoint),)


def _never_complete(self: WaitingForChannels) -> object:
    return self, ()


@pytest.mark.parametrize(
    ("kind", "event", "broken"),
    [
        (WaitingForChannels, "_finished_if_complete", _recorded_without_the_others),
        (WaitingForChannels, "_finished_if_complete", _never_complete),
        (WaitingForCut, "checkpoint_aborted", lambda self, checkpoint: (self, ())),
        (WaitingForChannels, "checkpoint_aborted", lambda self, checkpoint: (self, ())),
        (Aligning, "cut_taken", lambda self, checkpoint: (self, ())),
        (Aligning, "cut_requested", lambda self, checkpoint: (self, ())),
    ],
    ids=[
        "r14: the gate closes too early", "r14: the gate never closes", "r9: an aborted cut is taken",
        "r9: an aborted recording goes on", "r9: what was cut is cut again", "r17: nobody cuts at once",
    ],
)  # fmt: skip
def test_a_broken_machine_is_caught(kind: type, event: str, broken: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, event, broken)
    with pytest.raises(AssertionError):
        for scripts in all_scripts(2, 2):
            explore(scripts, BOTH_IDS, frozenset({ONE}))
