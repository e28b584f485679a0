"""What a barrier state asks the subtask to do."""

from dataclasses import dataclass

from cutwater.flow.ids import ChannelId, CheckpointId


@dataclass(frozen=True, slots=True)
class HoldChannel:
    """Whatever arrives on the channel from now on waits: data, watermarks, barriers and END alike."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class ReleaseChannels:
    """What waits on these channels is taken in again, in order, as if it arrived now."""

    channels: frozenset[ChannelId]


@dataclass(frozen=True, slots=True)
class CutHere:
    """Everything taken in so far is before the cut, everything later is behind it."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class AbandonAlignment:
    """The checkpoint cannot be cut here any more; the coordinator is told."""

    checkpoint: CheckpointId
    reason: str


Effect = HoldChannel | ReleaseChannels | CutHere | AbandonAlignment
