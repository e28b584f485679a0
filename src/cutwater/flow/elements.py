"""What a channel carries, in order."""

from dataclasses import dataclass

import pyarrow as pa

from cutwater.flow.ids import CheckpointId

Milliseconds = int
"""Event time and watermarks: milliseconds since the epoch."""

MAX_WATERMARK: Milliseconds = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Data:
    """Records. ``watermark`` is the sender's watermark after these records, when it has one."""

    batch: pa.RecordBatch
    watermark: Milliseconds | None = None


@dataclass(frozen=True, slots=True)
class CheckpointBarrier:
    """Divides a channel: what is before it belongs to the checkpoint, what is behind it does not."""

    checkpoint: CheckpointId
    unaligned: bool = False


@dataclass(frozen=True, slots=True)
class Watermark:
    """No record older than ``time`` follows. Sent bare only when there is no data to carry it."""

    time: Milliseconds


@dataclass(frozen=True, slots=True)
class Idle:
    """The channel has no data for now; its watermark holds nobody back until data follows."""


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """The last element of a channel. Without ``drain`` no window fires because of it."""

    drain: bool = True


Element = Data | CheckpointBarrier | Watermark | Idle | EndOfInput
