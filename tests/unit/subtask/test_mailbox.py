"""What the driver said waits here until the loop looks; what came too late is nothing (rule 9)."""

import pytest

from cutwater.control.messages import TriggerCheckpoint
from cutwater.flow.ids import ChannelId, CheckpointId
from cutwater.subtask.mailbox import Mailbox


def trigger(checkpoint: int) -> TriggerCheckpoint:
    return TriggerCheckpoint(CheckpointId(checkpoint), 0.0, False, False, False)


def pending(mailbox: Mailbox) -> list[int]:
    taken = []
    while (found := mailbox.take_trigger()) is not None:
        taken.append(found.checkpoint)
    return taken


def test_triggers_are_taken_in_order_and_once() -> None:
    mailbox = Mailbox()
    for checkpoint in (1, 2, 1):
        mailbox.put_trigger(trigger(checkpoint))
    assert pending(mailbox) == [1, 2]


def test_a_trigger_for_what_was_cut_is_nothing() -> None:
    mailbox = Mailbox()
    mailbox.put_trigger(trigger(1))
    mailbox.put_trigger(trigger(3))
    mailbox.cut(CheckpointId(2))
    mailbox.put_trigger(trigger(2))
    assert pending(mailbox) == [3]


def test_an_abort_takes_a_waiting_trigger_back_and_makes_a_late_one_nothing() -> None:
    mailbox = Mailbox()
    mailbox.put_trigger(trigger(1))
    mailbox.put_trigger(trigger(2))
    mailbox.drop_trigger(CheckpointId(2))
    mailbox.drop_trigger(CheckpointId(3))
    mailbox.put_trigger(trigger(2))
    mailbox.put_trigger(trigger(3))
    assert pending(mailbox) == [1]


def test_an_abort_of_a_newer_checkpoint_leaves_an_older_one_alone() -> None:
    """A subtask that ends is told of all pending ids then: later than an abort of a newer one."""
    mailbox = Mailbox()
    mailbox.drop_trigger(CheckpointId(2))
    mailbox.put_trigger(trigger(1))
    assert pending(mailbox) == [1]


def test_pause_is_by_channel() -> None:
    mailbox = Mailbox()
    mailbox.set_paused(ChannelId(1), paused=True)
    mailbox.set_paused(ChannelId(2), paused=True)
    mailbox.set_paused(ChannelId(1), paused=False)
    mailbox.set_paused(ChannelId(1), paused=False)
    assert mailbox.paused == {ChannelId(2)}


def test_the_first_failure_is_the_one_that_is_raised() -> None:
    mailbox = Mailbox()
    mailbox.raise_failure()
    mailbox.fail(ValueError("first"))
    mailbox.fail(ValueError("second"))
    assert mailbox.pending
    with pytest.raises(ValueError, match="first"):
        mailbox.raise_failure()


def test_a_late_confirmation_of_positions_does_not_go_back() -> None:
    mailbox = Mailbox()
    mailbox.set_stored_reservation(3)
    mailbox.set_stored_reservation(2)
    assert mailbox.stored_reservation == 3
