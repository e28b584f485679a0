"""Rule 20: ended subtasks still acknowledge, and a bounded job ends with a final checkpoint."""

from cutwater.checkpoint import commands as do
from cutwater.checkpoint import events as on
from cutwater.flow.ids import CheckpointId
from tests.unit.checkpoint.coordinator_script import ALL, COUNT, READ, WRITE, kinds, only, started


def test_a_subtask_that_ended_is_sent_every_pending_id_it_has_not_acknowledged():
    attempt = started(max_concurrent=3)
    attempt.periodic(10), attempt.periodic(20), attempt.periodic(30)
    attempt.ack(2, COUNT)
    triggers = only(attempt.end(COUNT), do.SendTrigger)
    assert [(trigger.checkpoint, trigger.to) for trigger in triggers] == [(1, (COUNT,)), (3, (COUNT,))]


def test_a_subtask_that_ended_gets_every_later_trigger():
    attempt = started()
    attempt.end(READ, COUNT)
    [trigger] = only(attempt.periodic(10), do.SendTrigger)
    assert trigger.to == (COUNT, READ)


def test_an_end_reported_again_sends_nothing():
    attempt = started()
    attempt.periodic(10)
    attempt.end(COUNT)
    assert kinds(attempt.end(COUNT)) == []


def test_the_final_checkpoint_starts_at_once_when_all_input_ended():
    attempt = started(min_pause="10 min")
    attempt.manual(1)
    attempt.reserve()
    attempt.complete(1)
    attempt.commit(1)
    attempt.now = 3
    [reserve] = only(attempt.end(), do.ReserveId)
    assert reserve.kind == "final"
    [trigger] = only(attempt.reserve(), do.SendTrigger)
    assert set(trigger.to) == set(ALL)


def test_subtasks_finish_after_the_final_checkpoint_is_committed():
    attempt = started()
    attempt.end()
    attempt.reserve()
    assert "FinishSubtasks" not in kinds(attempt.complete(1))
    assert kinds(attempt.at(1000)) == []
    assert kinds(attempt.commit(1)) == ["ConfirmOutput", "FinishSubtasks"]
    assert attempt.history.checkpoints()[0].kind == "final"


def test_without_sinks_to_commit_subtasks_finish_as_soon_as_the_final_checkpoint_completed():
    attempt = started(committing=())
    attempt.end()
    attempt.reserve()
    assert kinds(attempt.complete(1))[-3:] == ["NotifyCompleted", "ConfirmOutput", "FinishSubtasks"]


def test_the_final_checkpoint_waits_for_the_commit_of_the_one_before():
    attempt = started()
    attempt.periodic(10)
    attempt.complete(1)
    attempt.end()
    attempt.reserve()
    assert "NotifyCompleted" not in kinds(attempt.complete(2))
    assert kinds(attempt.commit(1)) == ["ConfirmOutput", "NotifyCompleted"]
    assert kinds(attempt.commit(2)) == ["ConfirmOutput", "FinishSubtasks"]


def test_a_running_older_checkpoint_may_complete_first_and_is_not_the_final_one():
    attempt = started()
    attempt.periodic(10)
    attempt.end()
    assert "FinishSubtasks" not in kinds(attempt.complete(1) + attempt.commit(1))
    attempt.reserve()
    assert "FinishSubtasks" in kinds(attempt.complete(2) + attempt.commit(2))


def test_the_final_checkpoint_subsumes_an_older_one_that_runs_beside_it():
    attempt = started(max_concurrent=2)
    attempt.periodic(10)
    attempt.end()
    attempt.reserve()
    attempt.complete(2)
    assert kinds(attempt.commit(2)) == ["ConfirmOutput", "FinishSubtasks"]
    assert [info.status for info in attempt.history.checkpoints()] == ["subsumed", "completed"]


def test_only_one_final_checkpoint_runs_at_a_time():
    attempt = started(max_concurrent=3)
    attempt.end()
    attempt.reserve()
    assert kinds(attempt.at(20)) == []
    assert kinds(attempt.manual(1)) == []


def test_an_id_that_was_being_reserved_when_the_last_input_ended_serves_the_final_checkpoint():
    attempt = started()
    attempt.at(10)
    assert only(attempt.end(), do.ReserveId) == []
    attempt.reserve()
    attempt.complete(1)
    assert kinds(attempt.commit(1)) == ["ConfirmOutput", "FinishSubtasks"]
    assert attempt.history.checkpoints()[0].kind == "final"


def test_a_failed_final_checkpoint_is_tried_again_and_counted():
    attempt = started(tolerable_failures=1)
    attempt.end()
    attempt.reserve()
    assert kinds(attempt.decline(1)) == ["SendAbort", "DeleteFiles", "RecordCheckpoint"]
    assert kinds(attempt.at(0.9)) == []
    assert kinds(attempt.at(1.0)) == ["ReserveId"]
    attempt.reserve()
    assert only(attempt.decline(2), do.FailJob)


def test_a_final_checkpoint_without_an_id_is_tried_again_after_a_pause():
    attempt = started()
    attempt.end()
    assert kinds(attempt.tell(on.ReservationFailed("bucket is gone"))) == ["RecordCheckpoint"]
    assert kinds(attempt.at(1.0)) == ["ReserveId"]


def test_manual_requests_are_served_by_the_final_checkpoint():
    attempt = started()
    attempt.periodic(10)
    attempt.manual(1)
    attempt.end()
    attempt.complete(1)
    attempt.reserve()
    [answer] = only(attempt.complete(2), do.CompleteRequest)
    assert (answer.request, answer.info.kind) == (1, "final")


def test_a_savepoint_asked_for_before_the_end_is_still_taken():
    attempt = started()
    attempt.periodic(10)
    attempt.savepoint(1)
    attempt.end()
    attempt.complete(1)
    attempt.reserve()
    assert [answer.info.kind for answer in only(attempt.complete(2), do.CompleteRequest)] == ["savepoint"]
    [trigger] = only(attempt.reserve(), do.SendTrigger)
    assert not trigger.savepoint


def test_what_could_not_start_before_the_job_finished_is_answered():
    attempt = started()
    attempt.end()
    attempt.reserve()
    attempt.complete(1)
    attempt.savepoint(1)
    attempt.manual(2)
    commands = attempt.commit(1)
    assert kinds(commands) == ["ConfirmOutput", "FinishSubtasks", "FailRequest", "FailRequest"]


def test_without_checkpoints_subtasks_finish_as_soon_as_all_input_ended():
    attempt = started(checkpointing=False)
    assert kinds(attempt.end(READ, COUNT)) == []
    assert attempt.end(WRITE) == [do.FinishSubtasks()]


def test_a_finished_job_takes_no_more_checkpoints():
    attempt = started(committing=())
    attempt.end()
    attempt.reserve()
    attempt.complete(1)
    assert attempt.at(1000) == []
    assert attempt.history.latest_completed == CheckpointId(1)
