"""Rules 5 and 6: which failures count, and what the end of an attempt leaves behind."""

import pytest

from cutwater.checkpoint import commands as do
from cutwater.checkpoint import events as on
from cutwater.flow.ids import CheckpointId
from tests.unit.checkpoint.coordinator_script import READ, Attempt, kinds, only, started


def fail(attempt: Attempt, checkpoint: int, how: str) -> list[do.Command]:
    match how:
        case "declined":
            return attempt.decline(checkpoint)
        case "expired":
            return attempt.at(attempt.now + 60)
        case "not stored":
            attempt.ack(checkpoint)
            return attempt.lost(checkpoint, unknown=False)
        case _:
            attempt.ack(checkpoint)
            return attempt.lost(checkpoint, unknown=True)


@pytest.mark.parametrize("how", ["declined", "expired", "not stored", "unknown"])
def test_the_job_fails_when_consecutive_failures_exceed_the_tolerable_number(how):
    attempt = started(tolerable_failures=2, interval="1s")
    for checkpoint in (1, 2, 3):
        if not only(attempt.log[-2:], do.ReserveId):
            attempt.at(attempt.now + 1)
        attempt.reserve()
        failures = only(fail(attempt, checkpoint, how), do.FailJob)
        assert len(failures) == (1 if checkpoint == 3 else 0)
    assert "3 checkpoints in a row" in failures[0].reason
    assert "checkpoint 3" in failures[0].reason


def test_an_expired_checkpoint_is_aborted_deleted_and_names_who_did_not_answer():
    attempt = started()
    attempt.periodic(10)
    attempt.ack(1, READ)
    assert kinds(attempt.at(69.9)) == []
    assert kinds(attempt.at(70)) == ["SendAbort", "DeleteFiles", "RecordCheckpoint", "ReserveId"]
    [info] = attempt.history.checkpoints()
    assert "count[0], write[0]" in info.failure_reason
    assert "read[0]" not in info.failure_reason


def test_a_success_resets_the_count():
    attempt = started(tolerable_failures=1)
    for checkpoint, good in enumerate([False, True, False, True, False], start=1):
        attempt.periodic(10 * checkpoint)
        attempt.complete(checkpoint) if good else attempt.decline(checkpoint)
    assert only(attempt.log, do.FailJob) == []
    assert attempt.history.failures.consecutive == 1


def test_several_declines_of_one_checkpoint_count_once():
    attempt = started(tolerable_failures=1)
    attempt.periodic(10)
    for _ in range(3):
        attempt.decline(1)
    assert attempt.history.failures.consecutive == 1
    assert len(only(attempt.log, do.SendAbort)) == 1


def test_failed_savepoints_never_fail_the_job():
    attempt = started(tolerable_failures=0)
    for checkpoint in range(1, 5):
        attempt.savepoint(checkpoint)
        attempt.reserve()
        attempt.decline(checkpoint)
    assert only(attempt.log, do.FailJob) == []
    assert [answer.request for answer in only(attempt.log, do.FailRequest)] == [1, 2, 3, 4]
    assert only(attempt.log, do.DeleteFiles) == []  # its folder is the user's


def test_a_savepoint_whose_id_cannot_be_reserved_does_not_fail_the_job():
    attempt = started(tolerable_failures=0)
    attempt.savepoint(1)
    assert kinds(attempt.tell(on.ReservationFailed("bucket is gone"))) == ["FailRequest", "RecordCheckpoint"]


def test_a_checkpoint_without_an_id_is_recorded_with_its_reason_said_once():
    attempt = started(tolerable_failures=0)
    attempt.at(10)
    commands = attempt.tell(on.ReservationFailed("bucket is gone"))
    [record] = only(commands, do.RecordCheckpoint)
    assert (record.info.id, record.info.kind, record.info.status) == (None, "checkpoint", "failed")
    assert record.info.failure_reason == "no checkpoint id could be reserved: bucket is gone"
    assert attempt.history.checkpoints() == [record.info]
    [failed] = only(commands, do.FailJob)
    assert failed.reason.count("could be reserved") == 1


def test_a_storage_that_gives_no_id_fails_one_checkpoint_after_the_other_until_the_job_fails():
    attempt = started(tolerable_failures=1)
    attempt.manual(1)
    [answer] = only(attempt.at(60), do.FailRequest)
    assert "the storage has not answered for 60.0 s" in answer.reason
    commands = attempt.at(120)
    assert only(commands, do.ReserveId) == []
    assert len(only(commands, do.FailJob)) == 1


def test_an_id_that_comes_late_still_serves_a_checkpoint_but_no_savepoint():
    attempt = started()
    attempt.manual(1)
    attempt.at(60)
    assert "SendTrigger" in kinds(attempt.tell(on.IdReserved(CheckpointId(1))))
    other = started()
    other.savepoint(1)
    other.at(60)
    assert "SendTrigger" not in kinds(other.tell(on.IdReserved(CheckpointId(1))))


def test_a_failing_job_starts_no_more_checkpoints_and_fails_once():
    attempt = started(tolerable_failures=0, max_concurrent=2)
    attempt.periodic(10)
    attempt.periodic(20)
    assert "FailJob" in kinds(attempt.decline(1))
    assert "FailJob" not in kinds(attempt.decline(2))
    assert only(attempt.at(100), do.ReserveId) == []
    assert kinds(attempt.manual(1)) == ["FailRequest"]


def test_consecutive_failures_carry_over_to_the_next_attempt():
    first = started(tolerable_failures=1)
    first.periodic(10)
    first.decline(1)
    first.tell(on.AttemptEnded("executor lost"))
    second = started(tolerable_failures=1, history=first.history, first_id=2)
    second.periodic(10)
    assert only(second.decline(2), do.FailJob)


def test_after_the_job_failed_for_them_the_next_attempt_has_its_own_tolerance():
    first = started(tolerable_failures=0)
    first.periodic(10)
    assert only(first.decline(1), do.FailJob)
    second = started(tolerable_failures=1, history=first.history, first_id=2)
    second.periodic(10)
    assert only(second.decline(2), do.FailJob) == []


def test_the_end_of_an_attempt_drops_what_is_pending_without_counting_it():
    attempt = started(tolerable_failures=0)
    attempt.manual(1)
    attempt.reserve()
    attempt.savepoint(2)
    commands = attempt.tell(on.AttemptEnded("executor lost"))
    assert kinds(commands) == ["DeleteFiles", "RecordCheckpoint", "FailRequest", "FailRequest"]
    assert attempt.history.checkpoints()[0].status == "aborted"
    assert attempt.history.failures.consecutive == 0


def test_metadata_stored_after_the_attempt_ended_still_completes_but_notifies_nobody():
    attempt = started()
    attempt.periodic(10)
    attempt.ack(1)
    assert kinds(attempt.tell(on.AttemptEnded("executor lost"))) == []
    assert kinds(attempt.stored(1)) == ["RecordCheckpoint"]
    assert attempt.history.retained == (1,)


def test_an_id_reserved_after_the_attempt_ended_is_not_used():
    attempt = started()
    attempt.at(10)
    attempt.tell(on.AttemptEnded("executor lost"))
    assert attempt.reserve() == []


def test_an_ended_attempt_sets_no_timer_and_refuses_requests():
    attempt = started()
    attempt.tell(on.AttemptEnded("executor lost"))
    assert attempt.at(1000) == []
    assert kinds(attempt.savepoint(1)) == ["FailRequest"]


def test_the_age_counts_from_the_latest_completed_checkpoint_not_from_savepoints():
    attempt = started()
    attempt.periodic(10)
    attempt.now = 12
    attempt.complete(1)
    attempt.savepoint(1)
    attempt.reserve()
    attempt.now = 15
    attempt.complete(2)
    assert attempt.history.latest_completed_at == 12
    assert attempt.history.latest_completed == CheckpointId(1)
