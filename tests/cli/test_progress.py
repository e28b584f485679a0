"""The displays of a job that somebody waits for: a real handle, whose state the test moves."""

from typing import cast

import pytest

from cutwater.checkpoint.statistics import CheckpointHistory
from cutwater.cli.progress import watch, watch_in_lines, watch_on_terminal
from cutwater.control.messages import Progress
from cutwater.errors import JobFailed
from cutwater.flow.ids import SubtaskId
from cutwater.job.handle import Job, JobState, Runner
from cutwater.job.result import JobResult

RESULT = JobResult("finished", 1, 0, 7, 7, 1.0, lambda _: [], {})


def _running() -> tuple[JobState, Job]:
    state = JobState("wordcount", CheckpointHistory())
    state.set_status("running")
    state.progress = {SubtaskId("counts", 0): Progress(1234, 5, 0.0, 0, 0)}
    return state, Job(state, cast(Runner, None))


def _finish(state: JobState) -> None:
    with state.changed:
        state.result, state.status = RESULT, "finished"
        state.changed.notify_all()


def test_lines_tell_of_status_and_log_and_somebody_else_gets_a_turn() -> None:
    state, job = _running()
    lines: list[str] = []

    def fail_then_finish() -> None:
        if not state.log:
            state.log.append("counts[0] failed; restarting in 1 s")
        else:
            _finish(state)

    assert watch_in_lines(job, lines.append, fail_then_finish) is RESULT
    assert lines[:2] == ["wordcount: running", "counts[0] failed; restarting in 1 s"]


def test_a_terminal_shows_subtasks_and_keeps_what_was_logged(capsys: pytest.CaptureFixture[str]) -> None:
    state, job = _running()
    state.log.append("restoring checkpoint 3")
    assert watch_on_terminal(job, lambda: _finish(state)) is RESULT
    assert "restoring checkpoint 3" in capsys.readouterr().err


def test_nothing_is_shown_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    state, job = _running()
    _finish(state)
    assert watch(job) is RESULT
    assert capsys.readouterr() == ("", "")


def test_a_failure_comes_through_the_display(capsys: pytest.CaptureFixture[str]) -> None:
    state, job = _running()
    state.failure = JobFailed("counts[0]: no more memory")
    with pytest.raises(JobFailed, match="no more memory"):
        watch_on_terminal(job)
