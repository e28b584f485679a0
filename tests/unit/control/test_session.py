"""The reliable session under loss, duplication, reordering and delay."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.control import session as session_module
from cutwater.control.packet import Acknowledgement, Conversation, Numbered, Packet, Refusal
from cutwater.control.session import ACKNOWLEDGE_AT, ACKNOWLEDGE_WITHIN, RESEND_AFTER, WINDOW, Body, Session
from cutwater.errors import ControlError
from cutwater.flow.ids import Attempt, SubtaskId

THIS = Conversation(Attempt(2), SubtaskId("count", 1), incarnation=77)
STALE = Conversation(Attempt(1), SubtaskId("count", 1), incarnation=77)
OTHER_PROCESS = Conversation(Attempt(2), SubtaskId("count", 1), incarnation=78)


def body(number: int) -> Body:
    return [str(number).encode()]


@dataclass
class Network:
    """Two sessions and every packet between them, in the hands of the test."""

    sides: tuple[Session, Session] = field(default_factory=lambda: (Session(THIS), Session(THIS)))
    now: float = 0.0
    in_flight: list[tuple[int, Packet]] = field(default_factory=list)
    offered: tuple[list[Body], list[Body]] = field(default_factory=lambda: ([], []))
    delivered: tuple[list[Body], list[Body]] = field(default_factory=lambda: ([], []))

    def offer(self, side: int) -> None:
        next_body = body(len(self.offered[side]))
        self.offered[side].append(next_body)
        self.sides[side].offer(next_body)

    def pump(self, side: int) -> None:
        self.in_flight += [(1 - side, packet) for packet in self.sides[side].outgoing(self.now)]

    def deliver(self, position: int, *, keep: bool) -> None:
        to, packet = self.in_flight[position] if keep else self.in_flight.pop(position)
        self.delivered[to].extend(self.sides[to].arrived(THIS, packet, self.now))

    def settle(self, rounds: int = 100) -> None:
        """A network that loses nothing from now on."""
        for _ in range(rounds):
            self.now += RESEND_AFTER
            for side in (0, 1):
                self.pump(side)
            while self.in_flight:
                self.deliver(0, keep=False)
            if all(side.backlog == 0 and side.next_due() is None for side in self.sides):
                return


steps = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(0, 1)),
        st.tuples(st.just("pump"), st.integers(0, 1)),
        st.tuples(st.just("wait"), st.integers(1, 40)),
        st.tuples(st.sampled_from(["deliver", "duplicate", "lose", "stale", "break"]), st.integers(0, 1000)),
    ),
    max_size=120,
)


@settings(max_examples=max(300, settings().max_examples))
@given(steps)
def test_everything_is_delivered_exactly_once_in_order_and_eventually(schedule: list[tuple[str, int]]) -> None:
    network = Network()
    for step, argument in schedule:
        match step:
            case "offer":
                network.offer(argument)
            case "pump":
                network.pump(argument)
            case "wait":
                network.now += argument / 20
            case "break":
                network.in_flight.clear()
                network.sides[argument % 2].reconnected()
            case _ if not network.in_flight:
                continue
            case "deliver":
                network.deliver(argument % len(network.in_flight), keep=False)
            case "duplicate":
                network.deliver(argument % len(network.in_flight), keep=True)
            case "lose":
                network.in_flight.pop(argument % len(network.in_flight))
            case "stale":
                to, packet = network.in_flight[argument % len(network.in_flight)]
                assert network.sides[to].arrived(STALE, packet, network.now) == []
        for side in (0, 1):
            assert network.delivered[1 - side] == network.offered[side][: len(network.delivered[1 - side])]
    network.settle()
    assert network.delivered == (network.offered[1], network.offered[0])
    assert all(side.backlog == 0 and side.backlog_bytes == 0 for side in network.sides)
    assert all(side.next_due() is None for side in network.sides)


def test_ten_windows_pass_through_a_window_of_one() -> None:
    network = Network()
    for _ in range(10 * WINDOW):
        network.offer(0)
    network.pump(0)
    assert len(network.in_flight) == WINDOW
    network.settle()
    assert network.delivered[1] == network.offered[0]


def test_a_lost_message_is_resent_after_a_tenth_of_a_second_and_then_ever_more_slowly() -> None:
    sender = Session(THIS)
    sender.offer(body(0))
    assert len(sender.outgoing(now=5.0)) == 1
    due = [sender.next_due()]
    for _ in range(6):
        assert due[-1] is not None
        assert sender.outgoing(due[-1] - 0.001) == []
        assert sender.outgoing(due[-1]) == [Numbered(1, 0, body(0))]
        due.append(sender.next_due())
    gaps = [
        round(later - earlier, 3) for earlier, later in zip([5.0, *due[:-1]], due, strict=True) if later and earlier
    ]
    assert gaps == [0.1, 0.1, 0.2, 0.4, 0.8, 1.6, 1.6]


def test_a_new_connection_resends_at_once() -> None:
    sender = Session(THIS)
    sender.offer(body(0))
    sender.outgoing(now=5.0)
    assert sender.outgoing(now=5.01) == []
    sender.reconnected()
    assert sender.outgoing(now=5.01) == [Numbered(1, 0, body(0))]


def test_a_message_is_acknowledged_soon_even_if_nothing_is_sent_back() -> None:
    receiver = Session(THIS)
    assert receiver.arrived(THIS, Numbered(1, 0, body(0)), 5.0) == [body(0)]
    receiver.arrived(THIS, Numbered(2, 0, body(0)), 5.005)
    assert receiver.next_due() == 5.0 + ACKNOWLEDGE_WITHIN
    assert receiver.outgoing(5.005) == []
    assert receiver.outgoing(5.0 + ACKNOWLEDGE_WITHIN) == [Acknowledgement(2)]
    assert receiver.next_due() is None
    assert receiver.outgoing(9.0) == []


def test_many_messages_are_acknowledged_at_once() -> None:
    receiver = Session(THIS)
    for number in range(1, ACKNOWLEDGE_AT):
        receiver.arrived(THIS, Numbered(number, 0, body(0)), 5.0)
        assert receiver.outgoing(5.0) == []
    receiver.arrived(THIS, Numbered(ACKNOWLEDGE_AT, 0, body(0)), 5.0)
    assert receiver.outgoing(5.0) == [Acknowledgement(ACKNOWLEDGE_AT)]


def test_a_duplicate_is_acknowledged_at_once_but_not_delivered_again() -> None:
    receiver = Session(THIS)
    assert receiver.arrived(THIS, Numbered(1, 0, body(0)), 5.0) == [body(0)]
    assert receiver.outgoing(6.0) == [Acknowledgement(1)]
    assert receiver.arrived(THIS, Numbered(1, 0, body(0)), 7.0) == []
    assert receiver.outgoing(7.0) == [Acknowledgement(1)]
    assert receiver.outgoing(7.0) == []


def test_an_acknowledgement_rides_on_data() -> None:
    receiver = Session(THIS)
    receiver.arrived(THIS, Numbered(1, 0, body(0)), 0.0)
    receiver.offer(body(9))
    assert receiver.outgoing(0.0) == [Numbered(1, 1, body(9))]


@pytest.mark.parametrize("stranger", [STALE, OTHER_PROCESS])
def test_packets_of_another_conversation_change_nothing(stranger: Conversation) -> None:
    receiver = Session(THIS)
    receiver.offer(body(9))
    receiver.outgoing(0.0)
    assert receiver.arrived(stranger, Numbered(1, 1, body(0)), 0.0) == []
    assert receiver.arrived(stranger, Acknowledgement(1), 0.0) == []
    assert receiver.backlog == 1
    assert receiver.outgoing(0.05) == []


def test_the_first_speaker_is_adopted_and_a_second_one_is_not() -> None:
    receiver = Session(None)
    receiver.offer(body(9))
    assert receiver.arrived(THIS, Numbered(1, 0, body(0)), 0.0) == []
    receiver.adopt(THIS)
    receiver.adopt(THIS)
    assert receiver.arrived(THIS, Numbered(1, 0, body(0)), 0.0) == [body(0)]
    with pytest.raises(ControlError, match="goes on already"):
        receiver.adopt(OTHER_PROCESS)


def test_what_lies_further_ahead_than_the_window_is_not_kept() -> None:
    receiver = Session(THIS)
    assert receiver.arrived(THIS, Numbered(WINDOW + 1, 0, body(0)), 0.0) == []
    for number in range(2, WINDOW + 1):
        receiver.arrived(THIS, Numbered(number, 0, body(number)), 0.0)
    assert len(receiver.arrived(THIS, Numbered(1, 0, body(1)), 0.0)) == WINDOW
    assert receiver.outgoing(0.0) == [Acknowledgement(WINDOW)]


def test_bytes_under_way_are_bounded_but_one_large_body_passes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "WINDOW_BYTES", 10)
    sender = Session(THIS)
    for size in (50, 5, 5, 5):
        sender.offer([b"x" * size])
    assert [packet.number for packet in sender.outgoing(0.0) if isinstance(packet, Numbered)] == [1]
    sender.arrived(THIS, Acknowledgement(1), 0.0)
    assert [packet.number for packet in sender.outgoing(0.0) if isinstance(packet, Numbered)] == [2, 3]


def test_a_backlog_nobody_takes_is_refused_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "BACKLOG", 3)
    sender = Session(THIS)
    for number in range(3):
        sender.offer(body(number))
    with pytest.raises(ControlError, match=r"3 control messages .* count\[1\]"):
        sender.offer(body(3))


def test_a_backlog_of_too_many_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "BACKLOG_BYTES", 10)
    sender = Session(THIS)
    sender.offer([b"x" * 50])
    with pytest.raises(ControlError, match="the other side hangs or is gone"):
        sender.offer([b"x"])


def test_an_acknowledgement_of_something_never_sent_is_an_error() -> None:
    with pytest.raises(ControlError, match="acknowledged message 4, but only 0"):
        Session(THIS).arrived(THIS, Acknowledgement(4), 0.0)


def test_packets_that_are_not_the_sessions_business_pass_by() -> None:
    assert Session(THIS).arrived(THIS, Refusal("no"), 0.0) == []
