"""The driver's view of all conversations, without sockets."""

from cutwater.control.conversations import Conversations, Outcome
from cutwater.control.packet import (
    Acknowledgement,
    Conversation,
    LeaseAsked,
    LeaseGranted,
    Numbered,
    Packet,
    Refusal,
)
from cutwater.control.presence import Presence
from cutwater.flow.ids import Attempt, SubtaskId

A, B = SubtaskId("count", 0), SubtaskId("count", 1)
SPEAKER = Conversation(Attempt(2), A, incarnation=7)
SECOND = 1_000_000_000


def conversations() -> tuple[Conversations, Presence]:
    presence = Presence(grace=0.5)
    return Conversations(Attempt(2), presence), presence


def arrive(
    subject: Conversations, packet: Packet, who: Conversation = SPEAKER, now: float = 10.0, accept: bool = True
) -> Outcome:
    route = who.incarnation.to_bytes(8)
    return subject.arrived(who, packet, route=route, descriptor=who.incarnation, now=now, accept_messages=accept)


def test_a_question_for_a_lease_is_answered_with_its_own_time() -> None:
    subject, _ = conversations()
    assert arrive(subject, LeaseAsked(123, 10 * SECOND)).answer == LeaseGranted(123)
    assert subject.lease_deadline(A) == 20.0
    assert subject.lease_deadline(B) is None


def test_an_aborted_subtask_gets_no_lease_and_the_abort_is_resent_until_heard() -> None:
    subject, _ = conversations()
    arrive(subject, LeaseAsked(1, 10 * SECOND))
    subject.abort_all([b"abort"])
    assert arrive(subject, LeaseAsked(2, 10 * SECOND), now=15.0) == Outcome()
    assert subject.lease_deadline(A) == 20.0
    for now in (15.0, 15.2):
        assert [packet for *_, packet in subject.outgoing(now)] == [Numbered(1, 0, [b"abort"])]


def test_whoever_comes_after_the_abort_hears_it_too() -> None:
    subject, _ = conversations()
    subject.abort_all([b"abort"])
    assert arrive(subject, LeaseAsked(1, 10 * SECOND)).answer is None
    assert [packet for *_, packet in subject.outgoing(10.0)] == [Numbered(1, 0, [b"abort"])]


def test_another_attempt_is_refused_and_leaves_no_trace() -> None:
    subject, presence = conversations()
    for attempt in (1, 3):
        stranger = Conversation(Attempt(attempt), A, incarnation=7)
        outcome = arrive(subject, Numbered(1, 0, [b"x"]), stranger)
        assert isinstance(outcome.answer, Refusal)
        assert outcome.bodies == []
    assert presence.connected() == set()
    assert arrive(subject, Numbered(1, 0, [b"mine"])).bodies == [[b"mine"]]


def test_a_second_process_neither_takes_over_nor_disturbs_the_first() -> None:
    subject, presence = conversations()
    arrive(subject, Numbered(1, 0, [b"one"]))
    second = Conversation(Attempt(2), A, incarnation=8)
    outcome = arrive(subject, Numbered(1, 0, [b"intruder"]), second)
    assert isinstance(outcome.answer, Refusal)
    assert outcome.bodies == []
    presence.disconnected(8, now=11.0)
    assert presence.connected() == {A}
    assert arrive(subject, Numbered(2, 0, [b"two"])).bodies == [[b"two"]]


def test_messages_wait_for_a_subtask_that_is_not_there() -> None:
    subject, presence = conversations()
    subject.send(A, [b"early"])
    assert subject.outgoing(10.0) == []
    assert subject.next_due() is None
    arrive(subject, LeaseAsked(1, SECOND))
    assert subject.outgoing(10.0) == [((7).to_bytes(8), SPEAKER, Numbered(1, 0, [b"early"]))]
    presence.disconnected(7, now=10.1)
    assert subject.outgoing(11.0) == []
    assert not presence.is_connected(A)
    assert subject.all_acknowledged()


def test_a_reconnect_resends_at_once_by_the_new_route() -> None:
    subject, presence = conversations()
    arrive(subject, LeaseAsked(1, SECOND))
    subject.send(A, [b"lost on the way"])
    subject.outgoing(10.0)
    presence.disconnected(7, now=10.01)
    subject.arrived(SPEAKER, LeaseAsked(2, SECOND), route=b"new", descriptor=30, now=10.02, accept_messages=True)
    assert subject.outgoing(10.02) == [(b"new", SPEAKER, Numbered(1, 0, [b"lost on the way"]))]
    assert not subject.all_acknowledged()
    subject.arrived(SPEAKER, Acknowledgement(1), route=b"new", descriptor=30, now=10.03, accept_messages=True)
    assert subject.all_acknowledged()
    assert subject.outgoing(20.0) == []


def test_while_nobody_takes_messages_they_are_not_acknowledged_but_leases_are_renewed() -> None:
    subject, _ = conversations()
    subject.send(A, [b"mine"])
    arrive(subject, LeaseAsked(1, SECOND))
    subject.outgoing(10.0)
    assert arrive(subject, Numbered(1, 1, [b"too much"]), accept=False).bodies == []
    assert subject.all_acknowledged()
    assert subject.outgoing(10.0) == []
    assert arrive(subject, LeaseAsked(2, SECOND), accept=False).answer == LeaseGranted(2)
    assert arrive(subject, Numbered(1, 1, [b"too much"])).bodies == [[b"too much"]]


def test_a_peer_that_breaks_the_rules_is_refused_from_then_on() -> None:
    subject, _ = conversations()
    outcome = arrive(subject, Acknowledgement(5))
    assert outcome.broke is not None
    assert "only 0 were sent" in outcome.broke
    assert arrive(subject, Numbered(1, 0, [b"x"])).answer == Refusal(outcome.broke)
