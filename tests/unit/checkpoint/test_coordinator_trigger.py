"""Rules 1 to 8: when a checkpoint starts."""

import dataclasses

import pytest

from cutwater.checkpoint import commands as do
from cutwater.checkpoint import events as on
from cutwater.checkpoint.statistics import CheckpointHistory, CheckpointKind
from cutwater.checkpoint.trigger import Hold, Moment, Occasion, Start, decide_trigger
from cutwater.flow.ids import CheckpointId, SubtaskId
from tests.unit.checkpoint.coordinator_script import ALL, COUNT, READ, WRITE, Attempt, kinds, only, started


def test_nothing_starts_before_every_subtask_is_running():
    attempt = Attempt()
    attempt.manual(1)
    attempt.tell(on.SubtaskRunning(READ))
    attempt.tell(on.SubtaskRunning(COUNT))
    assert only(attempt.at(1000), do.AllowStart, do.ReserveId) == []
    assert kinds(attempt.tell(on.SubtaskRunning(WRITE))) == ["AllowStart", "ReserveId"]


def test_running_reported_again_allows_the_start_only_once():
    attempt = started()
    assert only(attempt.run(), do.AllowStart) == []


def test_the_first_checkpoint_comes_one_interval_after_the_start():
    attempt = Attempt()
    assert attempt.run() == [do.AllowStart(), do.SetTimer(10.0)]
    assert kinds(attempt.at(9.9)) == []
    assert kinds(attempt.at(10)) == ["ReserveId"]


def test_the_id_is_reserved_before_any_trigger_is_sent():
    attempt = started()
    attempt.at(10)
    assert only(attempt.log, do.SendTrigger) == []
    [trigger] = only(attempt.reserve(), do.SendTrigger)
    assert trigger == do.SendTrigger(
        CheckpointId(1), triggered_at=10.0, unaligned=False, savepoint=False, stop=False, to=(READ,)
    )


def test_trigger_times_are_seconds_since_the_epoch():
    attempt = started(history=CheckpointHistory(epoch_offset=1_000_000.0))
    [trigger] = only(attempt.periodic(10), do.SendTrigger)
    assert trigger.triggered_at == 1_000_010.0
    attempt.complete(1)
    assert attempt.history.checkpoints()[0].trigger_time == 1_000_010.0


def test_an_unaligned_trigger_goes_to_every_subtask():
    attempt = started(unaligned=True)
    [trigger] = only(attempt.periodic(10), do.SendTrigger)
    assert trigger.unaligned
    assert set(trigger.to) == set(ALL)


def test_a_repeated_id_fails_the_job_instead_of_being_used():
    attempt = started(history=CheckpointHistory(retained=[CheckpointId(7)]), first_id=7)
    commands = attempt.periodic(10)
    assert only(commands, do.SendTrigger) == []
    [failure] = only(commands, do.FailJob)
    assert "7" in failure.reason


def test_an_id_of_an_aborted_checkpoint_is_not_used_again():
    attempt = started()
    attempt.periodic(10)
    attempt.decline(1)
    attempt.next_id = 1
    assert kinds(attempt.periodic(20)) == ["ReserveId", "FailJob"]


def test_a_savepoint_never_starts_beside_an_unaligned_checkpoint_even_if_there_is_room():
    moment = Moment(
        now=0.0, processing=True, stopping=False, reserving=False, pending=1, max_concurrent=2, unaligned_pending=True,
        savepoint_waiting=True, manual_waiting=False, all_input_ended=False, final_pending=False, final_completed=False,
        retry_final_at=0.0, periodic_at=0.0, min_pause=0.0, last_ended_at=None,
    )  # fmt: skip
    assert isinstance(decide_trigger(moment), Hold)
    assert decide_trigger(dataclasses.replace(moment, unaligned_pending=False)) == Start(Occasion.SAVEPOINT)


def test_the_minimum_pause_counts_from_the_end_of_the_last_checkpoint():
    attempt = started(min_pause="8s")
    attempt.periodic(10)
    attempt.now = 15
    attempt.complete(1)
    assert kinds(attempt.at(20)) == []
    assert kinds(attempt.at(22.9)) == []
    assert kinds(attempt.at(23)) == ["ReserveId"]


def test_the_minimum_pause_also_follows_a_checkpoint_that_failed():
    attempt = started(min_pause="8s")
    attempt.periodic(10)
    attempt.now = 15
    attempt.decline(1)
    assert kinds(attempt.at(22.9)) == []
    assert kinds(attempt.at(23)) == ["ReserveId"]


def test_the_minimum_pause_delays_neither_manual_checkpoints_nor_savepoints():
    attempt = started(min_pause="8s")
    attempt.periodic(10)
    attempt.complete(1)
    assert kinds(attempt.manual(1)) == ["ReserveId"]
    attempt.reserve()
    attempt.complete(2)
    assert kinds(attempt.savepoint(2)) == ["ReserveId"]


def test_periodic_checkpoints_do_not_queue_up_behind_a_slow_one():
    attempt = started()
    attempt.periodic(10)
    attempt.at(20), attempt.at(30), attempt.at(40)
    attempt.now = 45
    attempt.complete(1)
    assert len(only(attempt.log, do.ReserveId)) == 2
    attempt.reserve()
    attempt.complete(2)
    assert len(only(attempt.log, do.ReserveId)) == 2
    assert kinds(attempt.at(54.9)) == []
    assert kinds(attempt.at(55)) == ["ReserveId"]


def test_no_more_than_max_concurrent_checkpoints_are_pending():
    attempt = started(max_concurrent=2)
    attempt.periodic(10)
    attempt.periodic(20)
    assert kinds(attempt.at(30)) == []
    assert [pending.id for pending in attempt.coordinator.pending] == [1, 2]
    assert "ReserveId" in kinds(attempt.complete(1))


def test_waiting_requests_are_served_savepoints_first_then_manual_then_periodic():
    attempt = started()
    attempt.periodic(10)
    attempt.manual(1)
    attempt.savepoint(2)
    attempt.at(20)
    order = []
    for checkpoint in (1, 2, 3):
        [reserved] = only(attempt.complete(checkpoint), do.ReserveId)
        order.append(reserved.kind)
        attempt.reserve()
    assert order == [CheckpointKind.SAVEPOINT, CheckpointKind.CHECKPOINT, CheckpointKind.CHECKPOINT]
    answers = [answer.request for answer in only(attempt.log, do.CompleteRequest)]
    assert answers == [2, 1]


def test_one_checkpoint_serves_every_manual_request_that_waited():
    attempt = started()
    attempt.periodic(10)
    attempt.manual(1), attempt.manual(2)
    attempt.complete(1)
    attempt.reserve()
    answers = only(attempt.complete(2), do.CompleteRequest)
    assert [(answer.request, answer.info.id) for answer in answers] == [(1, 2), (2, 2)]
    assert len(only(attempt.log, do.ReserveId)) == 2


def test_a_savepoint_waits_for_an_unaligned_checkpoint_and_is_itself_aligned():
    attempt = started(unaligned=True)
    attempt.periodic(10)
    assert kinds(attempt.savepoint(1)) == []
    attempt.complete(1)
    [trigger] = only(attempt.reserve(), do.SendTrigger)
    assert (trigger.savepoint, trigger.unaligned, trigger.to) == (True, False, (READ,))


def test_a_savepoint_is_never_told_to_cut_unaligned():
    attempt = started(unaligned=True, aligned_timeout="2s")
    attempt.savepoint(1)
    attempt.reserve()
    assert only(attempt.at(59), do.SendCutNow) == []


def test_past_the_alignment_timeout_everybody_who_has_not_acknowledged_cuts_now():
    attempt = started(unaligned=True, aligned_timeout="2s")
    commands = attempt.periodic(10)
    [trigger] = only(commands, do.SendTrigger)
    assert not trigger.unaligned
    assert do.SetTimer(12.0) in commands
    attempt.ack(1, READ)
    assert only(attempt.at(11.9), do.SendCutNow) == []
    assert only(attempt.at(12), do.SendCutNow) == [do.SendCutNow(CheckpointId(1), 10.0, (COUNT, WRITE))]
    assert only(attempt.at(13), do.SendCutNow) == []


@pytest.mark.parametrize("unaligned", [True, False])
def test_past_the_alignment_timeout_the_checkpoint_is_unaligned_only_if_a_subtask_cut_so(unaligned: bool) -> None:
    attempt = started(unaligned=True, aligned_timeout="2s")
    attempt.periodic(10)
    attempt.ack(1, READ)
    attempt.at(12)
    attempt.ack(1, COUNT, unaligned=unaligned)
    [store] = only(attempt.ack(1, WRITE), do.StoreMetadata)
    attempt.stored(1)
    info = attempt.history.checkpoints()[0]
    assert (store.unaligned, info.unaligned) == (unaligned, unaligned)
    assert [part.vertex for part in info.subtasks if part.unaligned] == ([COUNT.vertex] if unaligned else [])


def test_a_checkpoint_that_began_unaligned_is_so_though_nobody_acknowledged() -> None:
    attempt = started(unaligned=True)
    attempt.periodic(10)
    attempt.decline(1)
    assert attempt.history.checkpoints()[0].unaligned


def test_whose_input_ends_past_the_alignment_timeout_is_told_to_cut_unaligned() -> None:
    attempt = started(unaligned=True, aligned_timeout="2s")
    attempt.periodic(10)
    attempt.at(12)
    [trigger] = only(attempt.end(COUNT), do.SendTrigger)
    assert trigger.unaligned


def test_a_checkpoint_that_completed_in_time_is_not_told_to_cut():
    attempt = started(unaligned=True, aligned_timeout="2s")
    attempt.periodic(10)
    attempt.complete(1)
    assert only(attempt.at(12), do.SendCutNow) == []


def test_a_failed_reservation_fails_the_manual_request_and_counts():
    attempt = started(tolerable_failures=1)
    attempt.manual(1)
    [answer] = only(attempt.tell(on.ReservationFailed("bucket is gone")), do.FailRequest)
    assert "bucket is gone" in answer.reason
    attempt.manual(2)
    assert only(attempt.tell(on.ReservationFailed("bucket is gone")), do.FailJob)


def test_after_a_failed_reservation_the_next_periodic_checkpoint_waits_for_the_interval():
    attempt = started()
    attempt.at(10)
    assert kinds(attempt.tell(on.ReservationFailed("bucket is gone"))) == ["RecordCheckpoint"]
    assert kinds(attempt.at(19)) == []
    assert kinds(attempt.at(20)) == ["ReserveId"]


def test_requests_to_a_job_without_checkpoints_are_refused_with_the_reason():
    attempt = started(checkpointing=False)
    [answer] = only(attempt.manual(1), do.FailRequest)
    assert "checkpointing=" in answer.reason
    assert only(attempt.at(10_000), do.ReserveId) == []


def test_a_withdrawn_savepoint_that_waits_never_starts():
    attempt = started()
    attempt.periodic(10)
    attempt.savepoint(1)
    assert kinds(attempt.tell(on.RequestWithdrawn(on.RequestId(1), "timed out"))) == ["FailRequest"]
    assert only(attempt.complete(1), do.ReserveId) == []


def test_a_savepoint_withdrawn_while_its_id_is_reserved_is_not_triggered():
    attempt = started()
    attempt.savepoint(1, stop=True)
    attempt.tell(on.RequestWithdrawn(on.RequestId(1), "timed out"))
    assert only(attempt.reserve(), do.SendTrigger) == []
    assert kinds(attempt.at(10)) == ["ReserveId"]


def test_a_running_savepoint_is_dropped_when_its_caller_withdraws():
    attempt = started()
    attempt.savepoint(1)
    attempt.reserve()
    commands = attempt.tell(on.RequestWithdrawn(on.RequestId(1), "timed out"))
    assert kinds(commands) == ["SendAbort", "RecordCheckpoint", "FailRequest"]
    assert attempt.history.checkpoints()[0].status == "aborted"


def test_a_checkpoint_goes_on_when_its_manual_caller_withdraws():
    attempt = started()
    attempt.manual(1)
    attempt.reserve()
    assert kinds(attempt.tell(on.RequestWithdrawn(on.RequestId(1), "timed out"))) == ["FailRequest"]
    assert only(attempt.complete(1), do.CompleteRequest) == []
    assert attempt.history.counts["completed"] == 1


def test_a_subtask_outside_the_attempt_changes_nothing():
    attempt = started()
    attempt.periodic(10)
    stranger = SubtaskId("stranger", 0)
    assert kinds(attempt.end(stranger)) == []
    assert kinds(attempt.ack(1, stranger)) == ["ReportAcknowledgement"]
