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


@dataclass(frozen=True, slots=True)
class CutAtOnce:
    """Cut before anything more is processed: what waits, and is not behind the barrier of its channel, is recorded."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class CancelCut:
    """The loop need not cut any more."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class FinishRecording:
    """Every live channel delivered its barrier: what was recorded is all that was in flight."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class DropRecording:
    """The checkpoint was given up behind the cut: nobody needs what was recorded."""

    checkpoint: CheckpointId


Effect = (
    HoldChannel | ReleaseChannels | CutHere | AbandonAlignment | CutAtOnce | CancelCut | FinishRecording | DropRecording
)
