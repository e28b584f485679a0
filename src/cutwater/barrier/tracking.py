"""At least once: barriers are counted, nothing is held back; rows that overtake a barrier are seen again after a failure."""

from dataclasses import dataclass, field, replace

from cutwater.barrier.effects import CutHere, Effect
from cutwater.flow.ids import ChannelId, CheckpointId

Transition = tuple["BarrierTracking", tuple[Effect, ...]]


@dataclass(frozen=True, slots=True)
class BarrierTracking:
    """``arrived`` maps each open checkpoint to the channels that delivered its barrier; several may be open at once."""

    live: frozenset[ChannelId]
    settled: CheckpointId = CheckpointId(0)
    aborted: frozenset[CheckpointId] = frozenset()
    arrived: dict[CheckpointId, frozenset[ChannelId]] = field(default_factory=dict)

    @property
    def aligning(self) -> CheckpointId | None:
        return min(self.arrived, default=None)

    @property
    def gate_is_open(self) -> bool:
        return False

    def barrier_arrived(self, channel: ChannelId, checkpoint: CheckpointId, *, unaligned: bool = False) -> Transition:
        if checkpoint <= self.settled or checkpoint in self.aborted:
            return self, ()
        delivered = self.arrived.get(checkpoint, frozenset()) | {channel}
        return replace(self, arrived={**self.arrived, checkpoint: delivered})._cut_what_is_complete()

    def channel_ended(self, channel: ChannelId) -> Transition:
        return replace(self, live=self.live - {channel})._cut_what_is_complete()

    def checkpoint_aborted(self, checkpoint: CheckpointId) -> Transition:
        if checkpoint <= self.settled:
            return self, ()
        remaining = {n: channels for n, channels in self.arrived.items() if n != checkpoint}
        return replace(self, aborted=self.aborted | {checkpoint}, arrived=remaining), ()

    def cut_requested(self, checkpoint: CheckpointId) -> Transition:
        """Nobody asks for an unaligned cut here: it would be exactly once."""
        return self, ()

    def cut_taken(self, checkpoint: CheckpointId) -> Transition:
        return self, ()

    def _cut_what_is_complete(self) -> Transition:
        complete = sorted(n for n, channels in self.arrived.items() if self.live <= channels)
        if not complete:
            return self, ()
        settled = complete[-1]
        state = replace(
            self,
            settled=settled,
            aborted=frozenset(n for n in self.aborted if n > settled),
            arrived={n: channels for n, channels in self.arrived.items() if n > settled},
        )
        return state, tuple(CutHere(n) for n in complete)
