"""Aligned, exactly once: a channel that delivered its barrier is held until all live channels delivered theirs.

    WaitingForFirstBarrier --barrier n--> WaitingForRemainingBarriers(n) --last barrier n, END or abort--> WaitingForFirstBarrier

A barrier counts once per channel; a channel that ended counts as having delivered every barrier (rule 20).
"""

from dataclasses import dataclass, replace

from cutwater.barrier.effects import AbandonAlignment, CutHere, Effect, HoldChannel, ReleaseChannels
from cutwater.flow.ids import ChannelId, CheckpointId

Transition = tuple["Alignment", tuple[Effect, ...]]


@dataclass(frozen=True, slots=True)
class WaitingForFirstBarrier:
    """``settled``: barriers up to this id were cut or given up. ``aborted``: higher ids given up in advance (rule 18)."""

    live: frozenset[ChannelId]
    settled: CheckpointId = CheckpointId(0)
    aborted: frozenset[CheckpointId] = frozenset()

    @property
    def aligning(self) -> CheckpointId | None:
        return None

    def barrier_arrived(self, channel: ChannelId, checkpoint: CheckpointId) -> Transition:
        if checkpoint <= self.settled or checkpoint in self.aborted:
            return self, ()
        waiting = WaitingForRemainingBarriers(self, checkpoint, frozenset())
        return waiting.barrier_arrived(channel, checkpoint)

    def channel_ended(self, channel: ChannelId) -> Transition:
        return replace(self, live=self.live - {channel}), ()

    def checkpoint_aborted(self, checkpoint: CheckpointId) -> Transition:
        if checkpoint <= self.settled:
            return self, ()
        return replace(self, aborted=self.aborted | {checkpoint}), ()

    def settle(self, checkpoint: CheckpointId) -> "WaitingForFirstBarrier":
        return replace(self, settled=checkpoint, aborted=frozenset(n for n in self.aborted if n > checkpoint))


@dataclass(frozen=True, slots=True)
class WaitingForRemainingBarriers:
    """``arrived`` are the channels held back for ``checkpoint``."""

    idle: WaitingForFirstBarrier
    checkpoint: CheckpointId
    arrived: frozenset[ChannelId]

    @property
    def aligning(self) -> CheckpointId | None:
        return self.checkpoint

    def barrier_arrived(self, channel: ChannelId, checkpoint: CheckpointId) -> Transition:
        if checkpoint < self.checkpoint or checkpoint in self.idle.aborted:
            return self, ()
        if checkpoint > self.checkpoint:
            overtaken = AbandonAlignment(self.checkpoint, f"checkpoint {checkpoint} overtook it")
            following = self.idle.settle(self.checkpoint)
            state, effects = following.barrier_arrived(channel, checkpoint)
            return state, (overtaken, *effects, ReleaseChannels(self.arrived))
        held = replace(self, arrived=self.arrived | {channel})
        return held._cut_if_complete((HoldChannel(channel),))

    def channel_ended(self, channel: ChannelId) -> Transition:
        idle, _ = self.idle.channel_ended(channel)
        assert isinstance(idle, WaitingForFirstBarrier)
        return replace(self, idle=idle)._cut_if_complete(())

    def checkpoint_aborted(self, checkpoint: CheckpointId) -> Transition:
        if checkpoint == self.checkpoint:
            return self.idle.settle(checkpoint), (ReleaseChannels(self.arrived),)
        idle, _ = self.idle.checkpoint_aborted(checkpoint)
        assert isinstance(idle, WaitingForFirstBarrier)
        return replace(self, idle=idle), ()

    def _cut_if_complete(self, meanwhile: tuple[Effect, ...]) -> Transition:
        if not self.idle.live <= self.arrived:
            return self, meanwhile
        return self.idle.settle(self.checkpoint), (CutHere(self.checkpoint), ReleaseChannels(self.arrived))


Alignment = WaitingForFirstBarrier | WaitingForRemainingBarriers
