"""Who is connected, whatever order the monitor's events and the packets come in."""

from cutwater.control.presence import Presence
from cutwater.flow.ids import SubtaskId

A, B = SubtaskId("count", 0), SubtaskId("count", 1)


def test_a_connection_that_ends_is_lost_after_the_grace_and_only_once() -> None:
    presence = Presence(grace=0.5)
    presence.accepted(20)
    assert presence.heard(A, 20, now=1.0)
    assert presence.connected() == {A}
    presence.disconnected(20, now=2.0)
    assert presence.connected() == set()
    assert presence.due() == 2.5
    assert presence.lost(2.4) == []
    assert presence.lost(2.5) == [A]
    assert presence.lost(3.0) == []
    assert presence.due() is None


def test_a_reconnect_within_the_grace_is_no_loss() -> None:
    presence = Presence(grace=0.5)
    presence.heard(A, 20, now=1.0)
    presence.disconnected(20, now=2.0)
    assert presence.heard(A, 21, now=2.2)
    assert presence.lost(9.0) == []
    assert presence.connected() == {A}


def test_a_lost_subtask_may_come_back_and_be_lost_again() -> None:
    presence = Presence(grace=0.5)
    presence.heard(A, 20, now=1.0)
    presence.disconnected(20, now=2.0)
    assert presence.lost(2.5) == [A]
    assert presence.heard(A, 21, now=4.0)
    presence.disconnected(21, now=5.0)
    assert presence.lost(5.5) == [A]


def test_the_end_of_an_older_connection_does_not_end_the_newer_one() -> None:
    presence = Presence(grace=0.5)
    presence.heard(A, 20, now=1.0)
    presence.accepted(21)
    assert presence.heard(A, 21, now=2.0)
    presence.disconnected(20, now=3.0)
    assert presence.connected() == {A}
    assert presence.lost(9.0) == []


def test_last_words_read_after_the_end_was_seen_do_not_connect() -> None:
    presence = Presence(grace=0.5)
    presence.accepted(20)
    presence.disconnected(20, now=1.0)
    assert not presence.heard(A, 20, now=1.0)
    assert presence.connected() == set()
    assert presence.lost(1.5) == [A]


def test_a_descriptor_that_is_used_again_belongs_to_its_new_owner() -> None:
    presence = Presence(grace=0.5)
    presence.heard(A, 20, now=1.0)
    presence.disconnected(20, now=2.0)
    presence.accepted(20)
    assert presence.heard(B, 20, now=2.1)
    assert presence.connected() == {B}
    assert presence.lost(2.5) == [A]


def test_a_descriptor_taken_over_unseen_loses_its_former_owner() -> None:
    presence = Presence(grace=0.5)
    presence.heard(A, 20, now=1.0)
    assert presence.heard(B, 20, now=2.0)
    assert presence.connected() == {B}
    assert presence.lost(2.5) == [A]
    presence.disconnected(20, now=3.0)
    assert presence.lost(3.5) == [B]


def test_a_subtask_that_said_goodbye_is_not_lost() -> None:
    presence = Presence(grace=0.5)
    presence.heard(A, 20, now=1.0)
    presence.departed(A)
    presence.disconnected(20, now=2.0)
    assert presence.lost(9.0) == []
    assert presence.due() is None
