"""The handle's questions: one that an attempt did not live to answer is put to the next."""

import threading
from dataclasses import dataclass, field

import pytest

import cutwater as cw
from cutwater.checkpoint.events import Event, ManualTriggerRequested, RequestWithdrawn
from cutwater.checkpoint.statistics import CheckpointHistory, CheckpointInfo, CheckpointKind, CheckpointStatus
from cutwater.flow.ids import CheckpointId, SubtaskId
from cutwater.job.handle import Job, JobState

INFO = CheckpointInfo(
    CheckpointId(7), CheckpointKind.CHECKPOINT, CheckpointStatus.COMPLETED, 0.0, 0.0, 0, 0, 0.0, 0.0, 0.0, 0.0,
    None, None, unaligned=False, subtasks=(),
)  # fmt: skip


@dataclass
class Attempts:
    """Attempts that end without an answer, one after the other, until the last one answers."""

    state: JobState
    silent: int
    asked: list[Event] = field(default_factory=list)
    attempt: object = field(default_factory=object)

    def ask(self, event: Event) -> object | None:
        self.asked.append(event)
        if self.silent:
            self.silent -= 1
            asked, self.attempt = self.attempt, object()
            return asked
        if isinstance(event, ManualTriggerRequested):
            self.state.answers[event.request] = INFO
        return self.attempt

    def may_answer(self, asked: object) -> bool:
        return asked is self.attempt

    def cancel(self) -> None: ...

    def workers(self) -> dict[SubtaskId, tuple[str, int]]:
        return {}


def job_of(silent: int) -> tuple[Job, Attempts]:
    state = JobState("words", CheckpointHistory(retained=(), epoch_offset=0.0))
    state.status = "running"
    attempts = Attempts(state, silent)
    return Job(state, attempts), attempts


def test_a_checkpoint_asked_of_an_attempt_that_ends_is_taken_by_the_next() -> None:
    job, attempts = job_of(silent=2)
    assert job.trigger_checkpoint("20s") == INFO
    assert len(attempts.asked) == 3


def test_who_asked_for_a_checkpoint_gets_it_after_those_who_listen() -> None:
    job, attempts = job_of(silent=0)
    heard: list[CheckpointInfo] = []
    may_hear = threading.Event()

    def listener(info: CheckpointInfo) -> None:
        may_hear.wait(20)
        heard.append(info)

    job.on_checkpoint(listener)
    attempts.state.listeners.tell(INFO)
    threading.Timer(0.2, may_hear.set).start()
    assert [job.trigger_checkpoint("20s")] == heard


def test_a_listener_may_ask_for_a_checkpoint() -> None:
    job, attempts = job_of(silent=0)
    taken: list[CheckpointInfo] = []
    job.on_checkpoint(lambda info: taken.append(job.trigger_checkpoint("20s")))
    attempts.state.listeners.tell(INFO)
    attempts.state.listeners.settle(4.0)
    assert taken == [INFO]


def test_a_question_to_an_attempt_that_lives_is_not_repeated() -> None:
    job, attempts = job_of(silent=0)
    attempts.ask = lambda event: (attempts.asked.append(event), attempts.attempt)[1]  # type: ignore[method-assign]
    with pytest.raises(cw.CutwaterError, match="not done after 300ms"):
        job.trigger_checkpoint("300ms")
    assert [type(event) for event in attempts.asked] == [ManualTriggerRequested, RequestWithdrawn]


def test_a_question_to_a_job_that_ends_says_how_and_why_it_ended() -> None:
    job, attempts = job_of(silent=10**9)
    attempts.state.failure = cw.JobFailed("counts, subtask 0: no such thing")
    threading.Timer(0.2, lambda: attempts.state.set_status("failed")).start()
    says = r"is failed: no checkpoint can be taken\. counts, subtask 0: no such thing"
    with pytest.raises(cw.CutwaterError, match=says):
        job.trigger_checkpoint("20s")


def test_what_cannot_be_called_is_no_listener() -> None:
    job, _ = job_of(silent=0)
    with pytest.raises(cw.ConfigError, match=r"on_checkpoint\(None\): a function is needed"):
        job.on_checkpoint(None)  # type: ignore[arg-type]


def test_a_job_shows_its_name_status_and_attempts() -> None:
    job, attempts = job_of(silent=0)
    attempts.state.attempts = 2
    assert repr(job) == "Job('words', status='running', attempts=2)"
