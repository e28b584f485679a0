"""What travels on the control connection: a numbered message, an acknowledgement, a lease asked or granted, a refusal.

Every packet says for whom it is: the attempt, the subtask, and the incarnation, a random number per client. The
incarnation tells a reconnect of one process from a second process that claims the same subtask.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

from cutwater.errors import ControlError
from cutwater.flow.ids import Attempt, SubtaskId

_MAGIC = b"CWC1"
_HEADER = struct.Struct("!4sBQQQQI")


class _Kind(IntEnum):
    NUMBERED = 1
    ACKNOWLEDGEMENT = 2
    LEASE_ASKED = 3
    LEASE_GRANTED = 4
    REFUSAL = 5


@dataclass(frozen=True, slots=True)
class Conversation:
    """Who speaks: equal on all packets of one client, in both directions."""

    attempt: Attempt
    subtask: SubtaskId
    incarnation: int


@dataclass(frozen=True, slots=True)
class Numbered:
    """One message. Numbers start at 1; ``acknowledged`` is the highest number received without a gap."""

    number: int
    acknowledged: int
    body: list[bytes]


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    acknowledged: int


@dataclass(frozen=True, slots=True)
class LeaseAsked:
    """Client to driver. ``asked_at`` is the client's clock; the driver only hands it back."""

    asked_at: int
    length: int
    """Both in nanoseconds."""


@dataclass(frozen=True, slots=True)
class LeaseGranted:
    """Driver to client: whoever asked at ``asked_at`` holds the lease for its length from then on."""

    asked_at: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Driver to client: there is no place for you here, end."""

    reason: str


Packet = Numbered | Acknowledgement | LeaseAsked | LeaseGranted | Refusal


def to_frames(conversation: Conversation, packet: Packet) -> list[bytes]:
    match packet:
        case Numbered(number, acknowledged, body):
            return [_header(conversation, _Kind.NUMBERED, number, acknowledged), *body]
        case Acknowledgement(acknowledged):
            return [_header(conversation, _Kind.ACKNOWLEDGEMENT, 0, acknowledged)]
        case LeaseAsked(asked_at, length):
            return [_header(conversation, _Kind.LEASE_ASKED, asked_at, length)]
        case LeaseGranted(asked_at):
            return [_header(conversation, _Kind.LEASE_GRANTED, asked_at, 0)]
        case Refusal(reason):
            return [_header(conversation, _Kind.REFUSAL, 0, 0), reason.encode()]


def from_frames(frames: list[bytes]) -> tuple[Conversation, Packet]:
    """Raises ControlError for anything that ``to_frames`` did not make."""
    try:
        magic, kind, attempt, incarnation, first, second, index = _HEADER.unpack_from(frames[0])
        vertex = frames[0][_HEADER.size :].decode()
        if magic != _MAGIC:
            raise ValueError(f"it begins with {magic!r}")
        return (
            Conversation(Attempt(attempt), SubtaskId(vertex, index), incarnation),
            _packet(kind, first, second, frames[1:]),
        )
    except (IndexError, struct.error, ValueError) as error:
        raise ControlError(f"a control packet that cannot be read ({error}): {frames[:1]!r:.120}") from error


def _header(conversation: Conversation, kind: _Kind, first: int, second: int) -> bytes:
    subtask = conversation.subtask
    fixed = _HEADER.pack(_MAGIC, kind, conversation.attempt, conversation.incarnation, first, second, subtask.index)
    return fixed + subtask.vertex.encode()


def _packet(kind: int, first: int, second: int, body: list[bytes]) -> Packet:
    if body and kind not in (_Kind.NUMBERED, _Kind.REFUSAL):
        raise ValueError(f"kind {kind} has no body")
    match kind:
        case _Kind.NUMBERED if first > 0 and body:
            return Numbered(first, second, body)
        case _Kind.ACKNOWLEDGEMENT:
            return Acknowledgement(second)
        case _Kind.LEASE_ASKED:
            return LeaseAsked(first, second)
        case _Kind.LEASE_GRANTED:
            return LeaseGranted(first)
        case _Kind.REFUSAL if len(body) == 1:
            return Refusal(body[0].decode())
        case _:
            raise ValueError(f"kind {kind}, {len(body)} frames of body")
