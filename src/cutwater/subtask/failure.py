"""What the driver is told of a subtask that failed: the same words from a Spark worker and from a simulated one."""

import traceback

from cutwater.control.messages import SubtaskFailed
from cutwater.errors import CommitLost, RestoreError, UserCodeError
from cutwater.flow.ids import SubtaskId
from cutwater.operators.user_code import own_line
from cutwater.subtask.chain import OperatorFailure


def failed(subtask: SubtaskId, error: BaseException) -> SubtaskFailed:
    """Which operator of ``subtask`` failed, how, and on which line of the user's code if that is known."""
    uid, cause = (error.uid, error.__cause__) if isinstance(error, OperatorFailure) else (subtask.vertex, error)
    trace = "".join(traceback.format_exception(error))
    if isinstance(cause, UserCodeError):
        return SubtaskFailed(uid, str(cause), cause.user_line, trace)
    said = f": {cause}" if str(cause) else ""
    return SubtaskFailed(
        uid, f"{type(cause).__name__}{said}", own_line(cause), trace, isinstance(cause, CommitLost | RestoreError)
    )
