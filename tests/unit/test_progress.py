"""What whoever waits for a job gets to see: a real handle, whose state the test moves."""

import threading
from typing import cast

import pytest

import cutwater as cw
from cutwater.checkpoint.statistics import CheckpointHistory
from cutwater.control.messages import Progress
from cutwater.flow.ids import SubtaskId
from cutwater.job.handle import Job, JobState, Runner
from cutwater.job.result import JobResult
from cutwater.progress import watch, watch_in_lines

RESULT = JobResult("finished", 1, 0, 7, 7, 1.0, lambda _: [], {})


class EndsWhenCanceled:
    """All of a runner that cancelling asks for."""

    def __init__(self, state: JobState) -> None:
        self._state = state

    def cancel(self) -> None:
        end(self._state)


def running() -> tuple[JobState, Job]:
    state = JobState("words", CheckpointHistory())
    state.set_status("running")
    state.progress = {SubtaskId("counts", 0): Progress(1234, 5, 0.0, 0, 0)}
    return state, Job(state, cast(Runner, EndsWhenCanceled(state)))


def end(state: JobState, failure: cw.JobFailed | None = None) -> None:
    with state.changed:
        state.log.append("the last word")
        state.failure = failure
        state.result = None if failure else RESULT
        state.status = "failed" if failure else "finished"
        state.changed.notify_all()


def end_soon(state: JobState, failure: cw.JobFailed | None = None) -> None:
    threading.Timer(0.3, end, (state, failure)).start()


def test_where_nobody_looks_what_a_job_logs_is_told_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    state, job = running()
    state.log.append("restarts after a failure [0]")
    end_soon(state)
    assert watch(job) is RESULT
    assert capsys.readouterr().err.splitlines() == ["words: restarts after a failure [0]", "words: the last word"]


def test_a_job_that_fails_is_told_about_first(capsys: pytest.CaptureFixture[str]) -> None:
    state, job = running()
    end_soon(state, cw.JobFailed("boom"))
    with pytest.raises(cw.JobFailed, match="boom"):
        watch(job)
    assert capsys.readouterr().err.splitlines()[-1] == "words: the last word"


def test_a_terminal_shows_subtasks_and_keeps_what_was_logged(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    state, job = running()
    state.log.append("restoring checkpoint 3")
    end_soon(state)
    assert watch(job) is RESULT
    shown = capsys.readouterr().err
    assert "restoring checkpoint 3" in shown
    assert "counts[0]" in shown
    assert "1,234" in shown


def test_lines_tell_of_status_and_log_and_somebody_else_gets_a_turn() -> None:
    state, job = running()
    lines: list[str] = []

    def fail_then_end() -> None:
        if not state.log.lines():
            state.log.append("counts[0] failed; restarting in 1 s")
        else:
            end(state)

    assert watch_in_lines(job, lines.append, fail_then_end) is RESULT
    assert lines == ["words: running", "counts[0] failed; restarting in 1 s", "the last word"]


def interrupted() -> None:
    raise KeyboardInterrupt


def test_ctrl_c_cancels_the_job_before_it_goes_on_to_whoever_waited() -> None:
    state, job = running()
    with pytest.raises(KeyboardInterrupt):
        watch(job, interrupted)
    assert state.result is RESULT


def test_ctrl_c_among_lines_cancels_the_job_too() -> None:
    state, job = running()
    lines: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        watch_in_lines(job, lines.append, interrupted)
    assert state.result is RESULT
    assert lines == ["words: running"]


def test_whoever_watches_a_job_that_nobody_reads_hears_of_it_as_from_print() -> None:
    state, job = running()
    state.reader_left = True
    end_soon(state)
    with pytest.raises(BrokenPipeError):
        watch(job)


def test_a_job_whose_log_nobody_reads_any_more_is_canceled() -> None:
    state, job = running()

    def say(line: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        watch_in_lines(job, say)
    assert state.result is RESULT  # it was told to end, and did
