"""Who waits for a job with ``env.execute`` is told what the job logs, however it ends."""

import threading

import pytest

import cutwater as cw
from cutwater.checkpoint.events import Event
from cutwater.checkpoint.statistics import CheckpointHistory
from cutwater.flow.ids import SubtaskId
from cutwater.job.handle import Job, JobState
from cutwater.job.result import JobResult
from cutwater.progress import watch


class NobodyRuns:
    def ask(self, event: Event) -> object | None:
        return None

    def may_answer(self, asked: object) -> bool:
        return False

    def cancel(self) -> None: ...

    def workers(self) -> dict[SubtaskId, tuple[str, int]]:
        return {}


def watched(failure: cw.JobFailed | None) -> JobResult:
    state = JobState("words", CheckpointHistory(retained=(), epoch_offset=0.0))
    state.log.append("restarts after a failure [0]")

    def end() -> None:
        with state.changed:
            state.log.append("the last word")
            state.failure = failure
            state.result = None if failure else JobResult("finished", 1, 0, 0, 0, 1.0, lambda _: [], {})
            state.changed.notify_all()

    threading.Timer(0.3, end).start()
    return watch(Job(state, NobodyRuns()))


def test_what_a_job_logs_is_told_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert watched(None).status == "finished"
    assert capsys.readouterr().err.splitlines() == ["words: restarts after a failure [0]", "words: the last word"]


def test_a_job_that_fails_is_told_about_first(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(cw.JobFailed, match="boom"):
        watched(cw.JobFailed("boom"))
    assert capsys.readouterr().err.splitlines()[-1] == "words: the last word"
