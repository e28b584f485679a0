"""What travels on the control connection: a numbered message, an acknowledgement, a lease asked or granted, a refusal.

Every packet says for whom it is: the attempt, the subtask, and the incarnation, a random number per client. The
incarnation tells a reconnect of one process from a second process that claims the same subtask.

A packet is one frame of ZeroMQ, whatever its body is made of: when a connection breaks between two frames of one message,
libzmq 4.3.5 now and then ends the whole process ("Assertion failed: !_more (src/fq.cpp:80)").
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, pairwise

from cutwater.errors import ControlError
from cutwater.flow.ids import Attempt, SubtaskId

_MAGIC = b"CWC2"
_HEADER = struct.Struct("!4sBQQQQIII")
"""Magic, kind, attempt, incarnation, two numbers of the kind, subtask index, bytes of the vertex's name, parts of the body."""
_LENGTH = struct.Struct("!Q")


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


def to_frame(conversation: Conversation, packet: Packet) -> bytes:
    match packet:
        case Numbered(number, acknowledged, body):
            return _joined(conversation, _Kind.NUMBERED, number, acknowledged, body)
        case Acknowledgement(acknowledged):
            return _joined(conversation, _Kind.ACKNOWLEDGEMENT, 0, acknowledged)
        case LeaseAsked(asked_at, length):
            return _joined(conversation, _Kind.LEASE_ASKED, asked_at, length)
        case LeaseGranted(asked_at):
            return _joined(conversation, _Kind.LEASE_GRANTED, asked_at, 0)
        case Refusal(reason):
            return _joined(conversation, _Kind.REFUSAL, 0, 0, [reason.encode()])


def from_frame(frame: bytes) -> tuple[Conversation, Packet]:
    """Raises ControlError for anything that ``to_frame`` did not make."""
    try:
        magic, kind, attempt, incarnation, first, second, index, named, parts = _HEADER.unpack_from(frame)
        if magic != _MAGIC:
            raise ValueError(f"it begins with {magic!r}")
        vertex, *body = _split(frame, _HEADER.size, named, parts)
        return (
            Conversation(Attempt(attempt), SubtaskId(vertex.decode(), index), incarnation),
            _packet(kind, first, second, body),
        )
    except (struct.error, ValueError) as error:
        raise ControlError(f"a control packet that cannot be read ({error}): {frame!r:.120}") from error


def _joined(conversation: Conversation, kind: _Kind, first: int, second: int, body: Sequence[bytes] = ()) -> bytes:
    subtask = conversation.subtask
    vertex = subtask.vertex.encode()
    fixed = _HEADER.pack(
        _MAGIC,
        kind,
        conversation.attempt,
        conversation.incarnation,
        first,
        second,
        subtask.index,
        len(vertex),
        len(body),
    )
    return b"".join((fixed, *(_LENGTH.pack(len(part)) for part in body), vertex, *body))


def _split(frame: bytes, at: int, named: int, parts: int) -> list[bytes]:
    """The vertex's name and the parts of the body; their lengths stand at ``at``."""
    content = at + parts * _LENGTH.size
    if content > len(frame):
        raise ValueError(f"{parts} parts in {len(frame)} bytes")
    lengths = [named, *(_LENGTH.unpack_from(frame, at + part * _LENGTH.size)[0] for part in range(parts))]
    if content + sum(lengths) != len(frame):
        raise ValueError(f"{len(frame)} bytes, {content + sum(lengths)} were sent")
    ends = list(accumulate(lengths, initial=content))
    return [frame[begin:end] for begin, end in pairwise(ends)]


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
            raise ValueError(f"kind {kind}, {len(body)} parts of body")
