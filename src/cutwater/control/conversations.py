"""All conversations of one attempt, as the driver sees them. Pure: packets and the time in, packets and bodies out."""

from dataclasses import dataclass, field

from cutwater.control.packet import Acknowledgement, Conversation, LeaseAsked, LeaseGranted, Numbered, Packet, Refusal
from cutwater.control.presence import Presence
from cutwater.control.session import Body, Session
from cutwater.errors import ControlError
from cutwater.flow.ids import Attempt, SubtaskId

Route = bytes
"""What the ROUTER socket calls a peer."""


@dataclass(slots=True)
class _Peer:
    session: Session = field(default_factory=lambda: Session(None))
    route: Route | None = None
    lease_ends: float | None = None
    aborted: bool = False
    broken: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a packet leads to: bodies to deliver, perhaps an answer at once, perhaps a peer that broke the rules."""

    bodies: list[Body] = field(default_factory=list)
    answer: Packet | None = None
    broke: str | None = None


class Conversations:
    """Sessions, routes, leases and presence of an attempt's subtasks.

    The first process that speaks for a subtask is that subtask; another one, and another attempt's, are refused.
    """

    def __init__(self, attempt: Attempt, presence: Presence) -> None:
        self._attempt = attempt
        self._presence = presence
        self._peers: dict[SubtaskId, _Peer] = {}
        self._active: set[SubtaskId] = set()
        self._abort: Body | None = None

    def send(self, subtask: SubtaskId, body: Body) -> None:
        self._peer(subtask).session.offer(body)
        self._active.add(subtask)

    def abort(self, subtask: SubtaskId, body: Body) -> None:
        """The last word to a subtask: its lease is not renewed any more."""
        self.send(subtask, body)
        self._peers[subtask].aborted = True

    def send_to_all(self, body: Body) -> None:
        for subtask in self._peers:
            self.send(subtask, body)

    def abort_all(self, body: Body) -> None:
        """Also meets those that come later."""
        for subtask in self._peers:
            self.abort(subtask, body)
        self._abort = body

    def lease_deadline(self, subtask: SubtaskId) -> float | None:
        peer = self._peers.get(subtask)
        return None if peer is None else peer.lease_ends

    def all_acknowledged(self) -> bool:
        return all(self._peers[subtask].session.backlog == 0 for subtask in self._presence.connected())

    def arrived(
        self,
        conversation: Conversation,
        packet: Packet,
        *,
        route: Route,
        descriptor: int,
        now: float,
        accept_messages: bool,
    ) -> Outcome:
        """Take one packet of an authenticated peer. Without ``accept_messages`` they are left to be sent again."""
        subtask = conversation.subtask
        if conversation.attempt != self._attempt:
            return Outcome(answer=Refusal(f"attempt {conversation.attempt} is not {self._attempt}, which runs here"))
        peer = self._peer(subtask)
        if peer.session.conversation is None:
            peer.session.adopt(conversation)
        if peer.session.conversation != conversation:
            return Outcome(answer=Refusal(f"another process runs {subtask} in attempt {self._attempt} already"))
        if peer.broken is not None:
            return Outcome(answer=Refusal(peer.broken))
        if self._presence.heard(subtask, descriptor, now):
            peer.route = route
            peer.session.reconnected()
        self._active.add(subtask)
        match packet:
            case LeaseAsked(asked_at, length):
                if peer.aborted:
                    return Outcome()
                peer.lease_ends = now + length / 1e9
                return Outcome(answer=LeaseGranted(asked_at))
            case Numbered(acknowledged=acknowledged) if not accept_messages:
                packet = Acknowledgement(acknowledged)
        try:
            return Outcome(bodies=peer.session.arrived(conversation, packet, now))
        except ControlError as error:
            return self.broke(subtask, str(error))

    def broke(self, subtask: SubtaskId, reason: str) -> Outcome:
        """This subtask said what nobody may say: it is refused from now on."""
        self._peers[subtask].broken = reason
        return Outcome(broke=reason)

    def outgoing(self, now: float) -> list[tuple[Route, Conversation, Packet]]:
        """What is due to peers that are connected."""
        packets: list[tuple[Route, Conversation, Packet]] = []
        for subtask in list(self._active):
            peer = self._peers[subtask]
            conversation, route = peer.session.conversation, peer.route
            if conversation is None or route is None or not self._presence.is_connected(subtask):
                continue
            packets += [(route, conversation, packet) for packet in peer.session.outgoing(now)]
            if peer.session.next_due() is None:
                self._active.discard(subtask)
        return packets

    def next_due(self) -> float | None:
        """When ``outgoing`` has something to say."""
        reachable = (subtask for subtask in self._active if self._presence.is_connected(subtask))
        dues = (self._peers[subtask].session.next_due() for subtask in reachable)
        return min((due for due in dues if due is not None), default=None)

    def _peer(self, subtask: SubtaskId) -> _Peer:
        peer = self._peers.get(subtask)
        if peer is None:
            peer = self._peers[subtask] = _Peer()
            if self._abort is not None:
                self.abort(subtask, self._abort)
        return peer
