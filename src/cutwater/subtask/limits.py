"""The sizes that keep a subtask's memory bounded and its loop responsive."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class FlowLimits:
    inbox_bytes: int = 2 * MIB
    """Back pressure: the reader stops here at the latest (rule 11)."""
    inbox_seconds: float = 0.1
    """Where bytes are processed slowly, it stops at those of so many seconds."""
    least_inbox_bytes: int = 128 * KIB
    hold_bytes: int = 4 * MIB
    """Per held channel: beyond it the sender is paused (rule 12)."""
    hold_memory_bytes: int = 1 * MIB
    """Per held channel: beyond it rows go to local disk."""
    in_flight_bytes: int = 256 * MIB
    """Per subtask: an unaligned checkpoint that would have to store more rows than these is given up."""
    in_flight_memory_bytes: int = 16 * MIB
    """Per subtask: beyond it, rows that such a checkpoint has overtaken are on local disk (rule 25)."""
    payload_bytes: int = 256 * KIB
    """A row of the exchange is sent when it has this many bytes; under this cap the bytes in flight stay bounded."""
    least_payload_bytes: int = 128 * KIB
    """Where little leaves within the linger time, because the receivers are slow, payloads are as small as this."""
    linger_seconds: float = 0.02
    """No record waits longer than this for its payload to fill."""
    watermark_seconds: float = 0.05
    """A channel without records hears of the watermark this often."""
    slice_seconds: float = 0.02
    """A slice of processing aims for at most this."""
    max_slice_rows: int = 131_072
    max_slice_bytes: int = 1 * MIB
    """What a slice makes of its rows stands before the next barrier, however slowly it leaves."""
    leaving_seconds: float = 0.4
    """Where it leaves slowly, a slice makes what leaves within this."""
