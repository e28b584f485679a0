"""What the driver and the subtasks say to each other. JSON on the wire, with binary attachments behind it.

A message is a frozen dataclass of JSON-able fields; ``encode``/``decode`` live beside the session (``control/wire.py``).
"""

from dataclasses import dataclass, field
from typing import Any

from cutwater.flow.ids import ChannelId, CheckpointId

Json = Any


# --- driver -> subtask ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deploy:
    """The first message to a subtask: what it restores. ``restore`` is None at a first start."""

    restore: Json | None
    attachments: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class StartProcessing:
    """Every subtask is running and restored output is committed: sources may emit."""


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """Cut here (sources; with ``unaligned`` everybody)."""

    checkpoint: CheckpointId
    triggered_at: float
    unaligned: bool = False
    savepoint: bool = False
    stop: bool = False
    """Sources emit nothing behind this barrier until StopSources, or AbortCheckpoint lets them go on (rule 21)."""


@dataclass(frozen=True, slots=True)
class CutNow:
    """The alignment timeout has passed: whoever has not cut for this checkpoint cuts unaligned."""

    checkpoint: CheckpointId
    triggered_at: float


@dataclass(frozen=True, slots=True)
class AbortCheckpoint:
    checkpoint: CheckpointId
    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """Sinks commit; readers hear that nothing before their position is asked for again."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class PauseChannel:
    """To the sender of a channel: emit nothing on it until ResumeChannel."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class ResumeChannel:
    channel: ChannelId


@dataclass(frozen=True, slots=True)
class AssignSplits:
    """Newly discovered splits of one source, for this subtask."""

    uid: str
    splits: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class StopSources:
    """Stop reading: emit EndOfInput(drain) behind the savepoint's barrier."""

    drain: bool


@dataclass(frozen=True, slots=True)
class ReservationStored:
    """At most once: everything up to this reservation is durable and may be emitted."""

    number: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The final checkpoint is complete and committed: end the task."""


@dataclass(frozen=True, slots=True)
class AbortAttempt:
    """This attempt is over; the process exits."""

    reason: str


# --- subtask -> driver ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a subtask. ``process_started`` tells a pid from a later one of the same number."""

    host: str
    pid: int
    process_started: float


@dataclass(frozen=True, slots=True)
class Running:
    """Restored, opened, restored output committed; waits for StartProcessing."""


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The snapshot is stored. ``snapshot`` is a SubtaskSnapshot as JSON, ``metrics`` a SubtaskMetrics as JSON.

    ``base``: the latest checkpoint that the subtask knew to be complete at its cut. Neither this snapshot nor a later one
    references files of an older one.
    """

    checkpoint: CheckpointId
    snapshot: Json
    metrics: Json
    attachments: tuple[bytes, ...] = ()
    base: CheckpointId | None = None


@dataclass(frozen=True, slots=True)
class Decline:
    checkpoint: CheckpointId
    reason: str


@dataclass(frozen=True, slots=True)
class InputEnded:
    """All input was processed; the subtask lives on, acknowledges every checkpoint and waits for Finish."""


@dataclass(frozen=True, slots=True)
class Committed:
    """All output up to this checkpoint is visible."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class RequestPause:
    """A receiver's held queue is full: the driver passes PauseChannel on to the channel's sender."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class RequestResume:
    channel: ChannelId


@dataclass(frozen=True, slots=True)
class ReservePositions:
    """At most once: make these positions durable before the rows behind them are emitted."""

    number: int
    positions: Json


@dataclass(frozen=True, slots=True)
class CollectedRows:
    """Rows of ``collect``: an Arrow IPC stream in the attachment, made visible by ``checkpoint``.

    ``writer``: index of the subtask that wrote them, which after a rescale need not be the one that sends them.
    """

    uid: str
    checkpoint: CheckpointId
    writer: int
    attachments: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class PrintedLines:
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """Sent about once a second, and once at the end: numbers since the attempt began. ``records_out`` went to other
    subtasks, ``records_written`` to sinks; ``counters`` are those of the user's functions, as ``uid.name``."""

    records_in: int
    records_out: int
    longest_gap: float
    held_bytes: int
    inbox_bytes: int
    counters: dict[str, int] = field(default_factory=dict)
    records_written: int = 0


@dataclass(frozen=True, slots=True)
class SlowLoop:
    """The loop has been in one call for ``seconds`` and is still there; ``stack`` says where."""

    seconds: float
    stack: str


@dataclass(frozen=True, slots=True)
class SubtaskFailed:
    """The root cause, as the user should read it; ``user_line`` is file:line of the user's code, if it was that.
    ``permanent``: another attempt would fail in the same way, and output may be lost."""

    uid: str
    error: str
    user_line: str | None
    trace: str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The subtask ended cleanly and will touch nothing any more."""


ToSubtask = (
    Deploy | StartProcessing | TriggerCheckpoint | CutNow | AbortCheckpoint | CheckpointCompleted
    | PauseChannel | ResumeChannel | AssignSplits | StopSources | ReservationStored | Finish | AbortAttempt
)  # fmt: skip
ToDriver = (
    Hello | Running | Acknowledge | Decline | InputEnded | Committed | RequestPause | RequestResume | ReservePositions
    | CollectedRows | PrintedLines | Progress | SlowLoop | SubtaskFailed | Goodbye
)  # fmt: skip
Message = ToSubtask | ToDriver
