"""What the driver is told of a subtask that failed."""

from cutwater.control.wire import decode, encode
from cutwater.errors import CommitLost, CutwaterError, RestoreError
from cutwater.flow.ids import SubtaskId
from cutwater.subtask.chain import OperatorFailure
from cutwater.subtask.failure import failed

SUBTASK = SubtaskId("numbers", 1)


def test_a_lost_commit_is_told_as_one_that_no_other_attempt_can_help() -> None:
    told = failed(SUBTASK, OperatorFailure("out", CommitLost("transaction 7 has expired")))
    assert decode(encode(told)) == told
    assert (told.uid, told.error, told.permanent) == ("out", "CommitLost: transaction 7 has expired", True)


def test_state_that_does_not_fit_is_told_in_the_same_way() -> None:
    assert failed(SUBTASK, OperatorFailure("counts", RestoreError("column 'n' is a string"))).permanent


def test_any_other_failure_may_pass() -> None:
    assert not failed(SUBTASK, OperatorFailure("out", CutwaterError("commit failed 5 times"))).permanent
