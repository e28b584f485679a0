"""One side of a reliable conversation: numbered, acknowledged, resent, delivered once and in order.

Pure: packets and the time go in, packets and bodies come out. No sockets, threads or clocks. The owner calls
``offer`` to send, ``arrived`` for every packet received, and ``outgoing`` whenever ``next_due`` has come and the
connection can take packets; what it does with the result may fail in any way.

Memory is bounded: at most a window of bodies waits for acknowledgement or for a gap to close, and ``offer`` refuses
what exceeds the backlog's limit.
"""

from collections import deque
from dataclasses import dataclass

from cutwater.control.packet import Acknowledgement, Conversation, Numbered, Packet
from cutwater.errors import ControlError

RESEND_AFTER = 0.1
"""Seconds. While a trigger is lost, this is what the checkpoint waits for."""

SLOWEST_RESEND = 1.6
"""A peer that is connected but stands still is not buried under copies: each resend waits twice as long, up to this."""

ACKNOWLEDGE_WITHIN = 0.01
"""An acknowledgement waits this long for a message to ride on: most messages are answered, and half the packets go."""

ACKNOWLEDGE_AT = 32
"""So many messages are acknowledged at once, so that the sender's window stays open."""

WINDOW = 256
"""Bodies under way at most: below ZeroMQ's own limit of 1000, at which a ROUTER drops."""

WINDOW_BYTES = 8 << 20
"""Bytes under way at most; a single body may exceed it alone."""

BACKLOG = 100_000
BACKLOG_BYTES = 256 << 20

Body = list[bytes]
_AT_ONCE = float("-inf")


@dataclass(slots=True)
class _UnderWay:
    body: Body
    size: int
    due: float
    patience: float = RESEND_AFTER


class Session:
    """Reliable delivery for one conversation. A packet of another conversation (a stale attempt, say) is dropped."""

    def __init__(self, conversation: Conversation | None) -> None:
        """``None``: the side that is spoken to first adopts its conversation with ``adopt``."""
        self._conversation = conversation
        self._waiting: deque[tuple[Body, int]] = deque()
        self._under_way: dict[int, _UnderWay] = {}
        self._under_way_bytes = 0
        self._last_number = 0
        self._received = 0
        self._ahead: dict[int, Body] = {}
        self._unacknowledged = 0
        self._acknowledge_by: float | None = None
        self.backlog_bytes = 0

    @property
    def conversation(self) -> Conversation | None:
        return self._conversation

    def adopt(self, conversation: Conversation) -> None:
        if self._conversation is not None and self._conversation != conversation:
            raise ControlError(f"{self._conversation} goes on already; {conversation} cannot take its place")
        self._conversation = conversation

    @property
    def backlog(self) -> int:
        """How many bodies were offered and not acknowledged."""
        return len(self._waiting) + len(self._under_way)

    def offer(self, body: Body) -> None:
        """Queue a body. It is delivered if the peer lives on; raises ControlError when the peer takes nothing."""
        size = sum(map(len, body))
        if self.backlog >= BACKLOG or (self.backlog and self.backlog_bytes + size > BACKLOG_BYTES):
            raise ControlError(
                f"{self.backlog} control messages ({self.backlog_bytes >> 20} MiB) wait for "
                f"{self._conversation.subtask if self._conversation else 'a peer that never spoke'}, which takes none: "
                f"the other side hangs or is gone"
            )
        self._waiting.append((body, size))
        self.backlog_bytes += size

    def arrived(self, conversation: Conversation, packet: Packet, now: float) -> list[Body]:
        """The bodies that this packet makes deliverable: each once, in the order of their numbers."""
        if conversation != self._conversation:
            return []
        match packet:
            case Numbered(number, acknowledged, body):
                self._settle(acknowledged)
                return self._take(number, body, now)
            case Acknowledgement(acknowledged):
                self._settle(acknowledged)
        return []

    def outgoing(self, now: float) -> list[Packet]:
        """What is to be put on the wire now: new bodies as far as the window goes, resends, else a bare acknowledgement."""
        packets: list[Packet] = []
        for number, entry in self._under_way.items():
            if entry.due <= now:
                packets.append(Numbered(number, self._received, entry.body))
                entry.due = now + entry.patience
                entry.patience = min(2 * entry.patience, SLOWEST_RESEND)
        while self._may_start_another():
            body, size = self._waiting.popleft()
            self._last_number += 1
            self._under_way[self._last_number] = _UnderWay(body, size, now + RESEND_AFTER)
            self._under_way_bytes += size
            packets.append(Numbered(self._last_number, self._received, body))
        if not packets and self._acknowledge_by is not None and self._acknowledge_by <= now:
            packets.append(Acknowledgement(self._received))
        if packets:
            self._acknowledge_by = None
            self._unacknowledged = 0
        return packets

    def next_due(self) -> float | None:
        """When ``outgoing`` has something to say; None while nothing is owed. In the past means at once."""
        if self._may_start_another():
            return _AT_ONCE
        resend = min((entry.due for entry in self._under_way.values()), default=None)
        if resend is None or self._acknowledge_by is None:
            return self._acknowledge_by if resend is None else resend
        return min(resend, self._acknowledge_by)

    def reconnected(self) -> None:
        """The connection is new, or refused packets: whatever is under way may be lost and is due at once."""
        for entry in self._under_way.values():
            entry.due = _AT_ONCE
            entry.patience = RESEND_AFTER

    def _may_start_another(self) -> bool:
        if not self._waiting or len(self._under_way) >= WINDOW:
            return False
        return not self._under_way or self._under_way_bytes + self._waiting[0][1] <= WINDOW_BYTES

    def _settle(self, acknowledged: int) -> None:
        if acknowledged > self._last_number:
            raise ControlError(
                f"{self._conversation} acknowledged message {acknowledged}, but only {self._last_number} were sent"
            )
        while self._under_way:
            first = next(iter(self._under_way))
            if first > acknowledged:
                return
            size = self._under_way.pop(first).size
            self._under_way_bytes -= size
            self.backlog_bytes -= size

    def _take(self, number: int, body: Body, now: float) -> list[Body]:
        self._unacknowledged += 1
        is_new = number > self._received and number not in self._ahead
        # A duplicate is acknowledged at once: it came because the acknowledgement was lost or late.
        if not is_new or self._unacknowledged >= ACKNOWLEDGE_AT:
            self._acknowledge_by = _AT_ONCE
        elif self._acknowledge_by is None:
            self._acknowledge_by = now + ACKNOWLEDGE_WITHIN
        if is_new and number <= self._received + WINDOW:
            self._ahead[number] = body
        deliverable: list[Body] = []
        while (next_body := self._ahead.pop(self._received + 1, None)) is not None:
            self._received += 1
            deliverable.append(next_body)
        return deliverable
