"""Exactly once, aligned until an unaligned cut is asked for: that one goes ahead of everything that waits.

    Aligning --cut asked for, or unaligned barrier n--> WaitingForCut(n) --the loop cut--> WaitingForChannels(n)
       ^                                                                                          |
       +------------------------------ last barrier n or END, or abort ---------------------------+

From the first arrow until the last the gate is open: rows are taken in however many wait, so that the barriers behind
them arrive. What was taken in before the barrier of its channel, and was not processed at the cut, belongs to the checkpoint.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

from cutwater.barrier.alignment import Alignment, WaitingForFirstBarrier, WaitingForRemainingBarriers
from cutwater.barrier.effects import (
    AbandonAlignment,
    CancelCut,
    CutAtOnce,
    CutHere,
    DropRecording,
    Effect,
    FinishRecording,
    ReleaseChannels,
)
from cutwater.flow.ids import ChannelId, CheckpointId

Transition = tuple["Overtaking", tuple[Effect, ...]]


@dataclass(frozen=True, slots=True)
class Aligning:
    """``queued``: every barrier of it has arrived, but the loop has not come to the cut: it may still be overtaken."""

    alignment: Alignment
    queued: CheckpointId | None = None

    @property
    def aligning(self) -> CheckpointId | None:
        return self.alignment.aligning

    @property
    def gate_is_open(self) -> bool:
        return False

    def barrier_arrived(self, channel: ChannelId, checkpoint: CheckpointId, *, unaligned: bool = False) -> Transition:
        if not unaligned:
            return self._after(*self.alignment.barrier_arrived(channel, checkpoint))
        state, effects = self.cut_requested(checkpoint)
        if not isinstance(state, WaitingForCut):
            return state, effects
        state, more = state.barrier_arrived(channel, checkpoint)
        return state, (*effects, *more)

    def channel_ended(self, channel: ChannelId) -> Transition:
        return self._after(*self.alignment.channel_ended(channel))

    def checkpoint_aborted(self, checkpoint: CheckpointId) -> Transition:
        state, effects = self._after(*self.alignment.checkpoint_aborted(checkpoint))
        return (replace(state, queued=None) if state.queued == checkpoint else state), effects

    def cut_requested(self, checkpoint: CheckpointId) -> Transition:
        """The driver says so, or the first unaligned barrier does."""
        match self.alignment:
            case WaitingForRemainingBarriers(idle, aligning, arrived):
                if checkpoint < aligning or checkpoint in idle.aborted:
                    return self, ()
                release = ReleaseChannels(arrived)
                if checkpoint == aligning:
                    return WaitingForCut(idle, checkpoint, arrived), (CutAtOnce(checkpoint), release)
                overtaken = AbandonAlignment(aligning, _overtook(checkpoint))
                state = WaitingForCut(idle.settle(aligning), checkpoint, frozenset())
                return state, (overtaken, CutAtOnce(checkpoint), release)
            case WaitingForFirstBarrier() as idle:
                if checkpoint == self.queued:
                    return WaitingForCut(idle, checkpoint, idle.live), (CutAtOnce(checkpoint),)
                if checkpoint <= idle.settled or checkpoint in idle.aborted:
                    return self, ()
                queued = () if self.queued is None else (AbandonAlignment(self.queued, _overtook(checkpoint)),)
                return WaitingForCut(idle, checkpoint, frozenset()), (*queued, CutAtOnce(checkpoint))

    def cut_taken(self, checkpoint: CheckpointId) -> Transition:
        """The loop has cut, told by a cut mark or by the driver."""
        alignment = self.alignment
        if isinstance(alignment, WaitingForFirstBarrier) and checkpoint > alignment.settled:
            alignment = alignment.settle(checkpoint)
        return Aligning(alignment, None if self.queued == checkpoint else self.queued), ()

    def _after(self, alignment: Alignment, effects: tuple[Effect, ...]) -> tuple["Aligning", tuple[Effect, ...]]:
        queued = next((effect.checkpoint for effect in effects if isinstance(effect, CutHere)), self.queued)
        return Aligning(alignment, queued), effects


@dataclass(frozen=True, slots=True)
class _GateOpen(ABC):
    """An unaligned cut is under way. ``delivered`` are the channels whose barrier is there."""

    idle: WaitingForFirstBarrier
    checkpoint: CheckpointId
    delivered: frozenset[ChannelId]

    @property
    def aligning(self) -> CheckpointId | None:
        return self.checkpoint

    @property
    def gate_is_open(self) -> bool:
        return True

    def barrier_arrived(self, channel: ChannelId, checkpoint: CheckpointId, *, unaligned: bool = False) -> Transition:
        if checkpoint < self.checkpoint or checkpoint in self.idle.aborted:
            return self._unchanged()
        if checkpoint > self.checkpoint:
            return self._overtaken(
                checkpoint, lambda following: following.barrier_arrived(channel, checkpoint, unaligned=unaligned)
            )
        return replace(self, delivered=self.delivered | {channel})._finished_if_complete()

    def channel_ended(self, channel: ChannelId) -> Transition:
        idle = replace(self.idle, live=self.idle.live - {channel})
        return replace(self, idle=idle)._finished_if_complete()

    def checkpoint_aborted(self, checkpoint: CheckpointId) -> Transition:
        if checkpoint == self.checkpoint:
            return Aligning(self.idle.settle(checkpoint)), (self._give_up(),)
        if checkpoint <= self.idle.settled:
            return self._unchanged()
        return replace(self, idle=replace(self.idle, aborted=self.idle.aborted | {checkpoint}))._unchanged()

    def cut_requested(self, checkpoint: CheckpointId) -> Transition:
        if checkpoint <= self.checkpoint or checkpoint in self.idle.aborted:
            return self._unchanged()
        return self._overtaken(checkpoint, lambda following: following.cut_requested(checkpoint))

    def cut_taken(self, checkpoint: CheckpointId) -> Transition:
        if checkpoint <= self.checkpoint:
            return self._unchanged()
        return self._overtaken(checkpoint, lambda following: following.cut_taken(checkpoint))

    def _overtaken(self, by: CheckpointId, follow: Callable[[Aligning], Transition]) -> Transition:
        abandoned = AbandonAlignment(self.checkpoint, _overtook(by))
        state, effects = follow(Aligning(self.idle.settle(self.checkpoint)))
        return state, (self._give_up(), abandoned, *effects)

    @abstractmethod
    def _unchanged(self) -> Transition: ...

    @abstractmethod
    def _give_up(self) -> Effect: ...

    @abstractmethod
    def _finished_if_complete(self) -> Transition: ...


@dataclass(frozen=True, slots=True)
class WaitingForCut(_GateOpen):
    """The loop has to cut before it takes anything more."""

    def cut_taken(self, checkpoint: CheckpointId) -> Transition:
        if checkpoint == self.checkpoint:
            return WaitingForChannels(self.idle, checkpoint, self.delivered)._finished_if_complete()
        return _GateOpen.cut_taken(self, checkpoint)

    def _unchanged(self) -> Transition:
        return self, ()

    def _give_up(self) -> Effect:
        return CancelCut(self.checkpoint)

    def _finished_if_complete(self) -> Transition:
        return self, ()


@dataclass(frozen=True, slots=True)
class WaitingForChannels(_GateOpen):
    """The loop has cut and goes on; rows that arrive before the barrier of their channel are recorded."""

    def _unchanged(self) -> Transition:
        return self, ()

    def _give_up(self) -> Effect:
        return DropRecording(self.checkpoint)

    def _finished_if_complete(self) -> Transition:
        if not self.idle.live <= self.delivered:
            return self, ()
        return Aligning(self.idle.settle(self.checkpoint)), (FinishRecording(self.checkpoint),)


Overtaking = Aligning | WaitingForCut | WaitingForChannels


def _overtook(checkpoint: CheckpointId) -> str:
    return f"checkpoint {checkpoint} overtook it"
