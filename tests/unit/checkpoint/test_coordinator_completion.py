"""Rules 26 to 28 and 41 to 43: acknowledgements, completing, subsuming, announcing, stopping."""

import pytest

from cutwater.checkpoint import commands as do
from cutwater.checkpoint import events as on
from cutwater.checkpoint.pending import AckOutcome
from cutwater.checkpoint.statistics import CheckpointHistory
from cutwater.flow.ids import CheckpointId, SubtaskId
from tests.unit.checkpoint.coordinator_script import (
    ALL,
    COUNT,
    READ,
    WRITE,
    kinds,
    metrics,
    only,
    snapshot,
    started,
)


def outcomes(commands):
    return [report.outcome for report in only(commands, do.ReportAcknowledgement)]


def test_every_subtask_acknowledges_before_metadata_is_stored():
    attempt = started()
    attempt.periodic(10)
    assert only(attempt.ack(1, READ, WRITE), do.StoreMetadata) == []
    [store] = only(attempt.ack(1, COUNT), do.StoreMetadata)
    assert [part.vertex for part in store.snapshots] == ["count", "read", "write"]


def test_an_acknowledgement_is_accepted_duplicate_unknown_or_discarded():
    attempt = started()
    attempt.periodic(10)
    assert outcomes(attempt.ack(1, READ)) == []
    assert outcomes(attempt.ack(1, READ)) == [AckOutcome.DUPLICATE]
    assert outcomes(attempt.ack(99, READ)) == [AckOutcome.UNKNOWN]
    attempt.decline(1)
    assert outcomes(attempt.ack(1, WRITE)) == [AckOutcome.DISCARDED]
    assert attempt.history.acknowledgements == {"accepted": 1, "duplicate": 1, "unknown checkpoint": 1, "discarded": 1}


def test_an_acknowledgement_of_a_completed_checkpoint_is_a_duplicate():
    attempt = started()
    attempt.periodic(10)
    attempt.complete(1)
    assert outcomes(attempt.ack(1, READ)) == [AckOutcome.DUPLICATE]
    assert only(attempt.log, do.DeleteFiles) == []


def test_files_of_a_late_acknowledgement_of_an_aborted_checkpoint_are_deleted():
    attempt = started()
    attempt.periodic(10)
    attempt.decline(1)
    assert only(attempt.ack(1, WRITE), do.DeleteFiles) == [do.DeleteFiles((CheckpointId(1),))]


def test_files_of_a_late_decline_of_an_aborted_checkpoint_are_deleted():
    """Some of its states may be stored, though not all."""
    attempt = started()
    attempt.periodic(10)
    attempt.decline(1)
    assert only(attempt.decline(1, WRITE), do.DeleteFiles) == [do.DeleteFiles((CheckpointId(1),))]


def test_files_of_an_id_nobody_here_knows_are_left_alone():
    attempt = started()
    assert only(attempt.ack(99, WRITE), do.DeleteFiles) == []
    assert only(attempt.decline(99, WRITE), do.DeleteFiles) == []


def test_the_order_is_store_then_subsume_then_notify():
    attempt = started(history=CheckpointHistory(retained=[CheckpointId(3)]), retain=1, first_id=4, max_concurrent=2)
    attempt.periodic(10)
    attempt.periodic(20)
    attempt.ack(5)
    assert kinds(attempt.log)[-1] == "StoreMetadata"
    assert kinds(attempt.stored(5)) == [
        "RecordCheckpoint", "SendAbort", "DeleteFiles", "RecordCheckpoint", "DeleteFiles", "NotifyCompleted",
    ]  # fmt: skip
    assert only(attempt.log, do.DeleteFiles) == [do.DeleteFiles((CheckpointId(4),)), do.DeleteFiles((CheckpointId(3),))]


def test_completing_drops_older_pending_checkpoints_without_counting_them():
    attempt = started(max_concurrent=2, tolerable_failures=0)
    attempt.periodic(10)
    attempt.periodic(20)
    commands = attempt.complete(2)
    assert [(info.id, info.status) for info in attempt.history.checkpoints()] == [(1, "subsumed"), (2, "completed")]
    assert only(commands, do.FailJob) == []


def test_completing_leaves_newer_pending_checkpoints_alone():
    attempt = started(max_concurrent=2)
    attempt.periodic(10)
    attempt.periodic(20)
    assert only(attempt.complete(1), do.SendAbort) == []
    assert only(attempt.complete(2), do.RecordCheckpoint)[0].info.status == "completed"


def test_a_manual_request_on_a_subsumed_checkpoint_is_answered_with_the_newer_one():
    attempt = started(max_concurrent=2)
    attempt.manual(1)
    attempt.reserve()
    attempt.periodic(10)
    [answer] = only(attempt.complete(2), do.CompleteRequest)
    assert (answer.request, answer.info.id) == (1, 2)


def test_completing_does_not_drop_an_older_pending_savepoint():
    attempt = started(max_concurrent=2)
    attempt.savepoint(1)
    attempt.reserve()
    attempt.periodic(10)
    attempt.complete(2)
    [answer] = only(attempt.complete(1), do.CompleteRequest)
    assert (answer.request, answer.info.path) == (1, "chk-1")


def test_a_savepoint_subsumes_nothing_and_is_not_retained():
    attempt = started(max_concurrent=2, retain=1)
    attempt.periodic(10)
    attempt.savepoint(1)
    attempt.reserve()
    assert only(attempt.complete(2), do.SendAbort, do.DeleteFiles) == []
    assert attempt.history.retained == ()
    attempt.complete(1)
    assert attempt.history.retained == (1,)


def test_an_older_checkpoint_that_is_already_being_stored_is_not_dropped():
    attempt = started(max_concurrent=2, retain=1)
    attempt.periodic(10)
    attempt.periodic(20)
    attempt.ack(1)
    attempt.complete(2)
    assert only(attempt.log, do.SendAbort, do.DeleteFiles) == []
    commands = attempt.stored(1)
    assert only(commands, do.NotifyCompleted) == []
    assert only(commands, do.DeleteFiles) == [do.DeleteFiles((CheckpointId(1),))]
    assert attempt.history.retained == (2,)
    assert kinds(attempt.commit(2)) == ["ConfirmOutput"]  # the notice of 2 covered 1


def test_only_the_wanted_number_of_checkpoints_is_kept_and_always_the_latest():
    attempt = started(retain=2)
    for checkpoint in (1, 2, 3):
        attempt.periodic(10 * checkpoint)
        attempt.complete(checkpoint)
        attempt.commit(checkpoint)
    assert attempt.history.retained == (2, 3)
    assert only(attempt.log, do.DeleteFiles) == [do.DeleteFiles((CheckpointId(1),))]


def test_when_metadata_is_known_not_to_be_stored_its_files_are_deleted():
    attempt = started()
    attempt.periodic(10)
    attempt.ack(1)
    assert kinds(attempt.lost(1, unknown=False)) == ["SendAbort", "DeleteFiles", "RecordCheckpoint"]


def test_when_it_is_unknown_whether_metadata_was_stored_nothing_is_deleted_ever():
    attempt = started(retain=1)
    attempt.periodic(10)
    attempt.ack(1)
    assert kinds(attempt.lost(1, unknown=True)) == ["SendAbort", "RecordCheckpoint"]
    attempt.ack(1, READ)
    attempt.periodic(20)
    attempt.complete(2)
    attempt.tell(on.AttemptEnded("executor lost"))
    assert only(attempt.log, do.DeleteFiles) == []
    assert attempt.history.checkpoints()[-1].status == "failed"


def test_an_expiring_timeout_does_not_abort_what_may_already_be_stored():
    attempt = started()
    attempt.periodic(10)
    attempt.at(60)
    attempt.ack(1)
    assert only(attempt.at(75), do.SendAbort) == []
    assert attempt.stored(1)
    assert attempt.history.retained == (1,)


def test_a_storage_that_does_not_answer_fails_the_checkpoint_and_nothing_of_it_is_deleted():
    attempt = started()
    attempt.periodic(10)
    attempt.ack(1)
    commands = attempt.at(70)
    [record] = only(commands, do.RecordCheckpoint)
    assert (record.info.id, record.info.status) == (1, "failed")
    assert "the storage has not answered 60.0 s after the trigger" in record.info.failure_reason
    assert only(commands, do.DeleteFiles) == []


def test_a_checkpoint_whose_metadata_was_stored_after_all_is_retained_and_announced_to_nobody():
    attempt = started()
    attempt.periodic(10)
    attempt.ack(1)
    attempt.at(70)
    assert only(attempt.stored(1), do.NotifyCompleted, do.RecordCheckpoint) == []
    assert attempt.history.retained == (1,)


def test_the_next_notice_waits_until_every_sink_subtask_has_committed_the_last():
    attempt = started(committing=(COUNT, WRITE))
    attempt.periodic(10)
    assert "NotifyCompleted" in kinds(attempt.complete(1))
    attempt.periodic(20)
    assert "NotifyCompleted" not in kinds(attempt.complete(2))
    assert kinds(attempt.commit(1)) == []
    commands = attempt.tell(on.OutputCommitted(COUNT, CheckpointId(1)))
    assert commands == [do.ConfirmOutput(CheckpointId(1)), do.NotifyCompleted(CheckpointId(2))]


def test_a_commit_reported_again_does_not_count_for_the_next_checkpoint():
    attempt = started()
    attempt.periodic(10)
    attempt.complete(1)
    attempt.commit(1)
    attempt.periodic(20)
    attempt.complete(2)
    assert kinds(attempt.commit(1)) == []
    assert kinds(attempt.commit(2)) == ["ConfirmOutput"]


def test_without_committing_subtasks_output_is_confirmed_at_once():
    attempt = started(committing=())
    attempt.periodic(10)
    assert kinds(attempt.complete(1))[-2:] == ["NotifyCompleted", "ConfirmOutput"]


def test_a_savepoint_of_a_running_job_commits_nothing():
    attempt = started()
    attempt.savepoint(1)
    attempt.reserve()
    assert kinds(attempt.complete(1)) == ["StoreMetadata", "RecordCheckpoint", "CompleteRequest"]


def test_stop_with_savepoint_commits_its_output_before_the_sources_stop():
    attempt = started()
    attempt.savepoint(1, stop=True)
    [trigger] = only(attempt.reserve(), do.SendTrigger)
    assert (trigger.stop, trigger.savepoint) == (True, True)
    assert kinds(attempt.complete(1)) == ["StoreMetadata", "RecordCheckpoint", "NotifyCompleted"]
    assert kinds(attempt.commit(1)) == ["ConfirmOutput", "StopSources", "CompleteRequest"]
    assert kinds(attempt.at(500)) == []
    assert kinds(attempt.end()) == ["FinishSubtasks"]


def test_stop_with_drain_takes_a_final_checkpoint_of_what_the_windows_fired():
    attempt = started()
    attempt.savepoint(1, stop=True, drain=True)
    attempt.reserve()
    attempt.complete(1)
    assert do.StopSources(drain=True) in attempt.commit(1)
    assert kinds(attempt.end()) == ["ReserveId"]
    attempt.reserve()
    attempt.complete(2)
    assert kinds(attempt.commit(2)) == ["ConfirmOutput", "FinishSubtasks"]
    assert attempt.coordinator.stopped_at is None


def test_a_job_that_ends_while_it_is_stopped_still_commits_the_savepoint_and_answers():
    attempt = started(max_concurrent=2)
    attempt.end()
    attempt.reserve()
    attempt.savepoint(1, stop=True)
    attempt.reserve()
    attempt.complete(1)
    attempt.commit(1)
    assert "FinishSubtasks" not in kinds(attempt.complete(2))
    assert kinds(attempt.commit(2)) == ["ConfirmOutput", "StopSources", "CompleteRequest", "FinishSubtasks"]


def test_no_other_checkpoint_starts_while_sources_stand_still_for_a_stop():
    attempt = started(max_concurrent=2)
    attempt.savepoint(1, stop=True)
    attempt.reserve()
    assert kinds(attempt.at(20)) == []
    assert kinds(attempt.manual(2)) == []


@pytest.mark.parametrize("failure", ["declined", "expired", "not stored", "unknown"])
def test_a_failed_stop_with_savepoint_leaves_the_job_running_and_says_why(failure):
    attempt = started(tolerable_failures=0)
    attempt.savepoint(1, stop=True)
    attempt.reserve()
    match failure:
        case "declined":
            commands = attempt.decline(1)
        case "expired":
            commands = attempt.at(60)
        case _:
            attempt.ack(1)
            commands = attempt.lost(1, unknown=failure == "unknown")
    assert only(commands, do.FailJob, do.DeleteFiles, do.StopSources) == []
    assert len(only(commands, do.SendAbort)) == 1  # the sources resume
    [answer] = only(commands, do.FailRequest)
    assert "savepoint 1 did not complete" in answer.reason
    assert attempt.coordinator.stopped_at is None
    attempt.at(100)
    assert kinds(attempt.log)[-1] == "ReserveId"


def test_a_stopped_job_that_fails_before_it_ended_must_restore_its_savepoint():
    attempt = started()
    attempt.savepoint(1, stop=True)
    attempt.reserve()
    attempt.complete(1)
    [answer] = only(attempt.tell(on.AttemptEnded("executor lost")), do.FailRequest)
    assert "complete at chk-1" in answer.reason
    assert attempt.coordinator.stopped_at is not None
    assert attempt.coordinator.stopped_at.id == 1


def test_the_record_of_a_checkpoint_sums_bytes_and_shows_the_slowest_subtask():
    attempt = started()
    attempt.periodic(10)
    for seconds, subtask in enumerate(ALL, start=1):
        attempt.now = 10.0 + seconds
        times = metrics(alignment=float(seconds), longest_gap=seconds / 10, processed_bytes=seconds)
        attempt.tell(on.Acknowledged(subtask, CheckpointId(1), snapshot(subtask), times))
    attempt.stored(1)
    [info] = attempt.history.checkpoints()
    assert (info.id, info.kind, info.status, info.path) == (1, "checkpoint", "completed", "chk-1")
    assert (info.trigger_time, info.duration, info.alignment) == (10.0, 3.0, 3.0)
    assert (info.state_bytes, info.in_flight_bytes, info.processed_bytes) == (300, 30, 6)
    assert [part.processed_bytes for part in info.subtasks] == [2, 1, 3]
    assert (info.start_delay, info.sync_duration, info.async_duration) == (0.1, 0.01, 0.5)
    assert [(SubtaskId(part.vertex, part.index), part.longest_gap) for part in info.subtasks] == [
        (COUNT, 0.2), (READ, 0.1), (WRITE, 0.3),
    ]  # fmt: skip


def test_records_stand_newest_first():
    attempt = started()
    for checkpoint in (1, 2):
        attempt.periodic(10 * checkpoint)
        attempt.complete(checkpoint)
        attempt.commit(checkpoint)
    assert [info.id for info in attempt.history.checkpoints()] == [2, 1]
