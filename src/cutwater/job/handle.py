"""The handle on a running job."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from cutwater.arguments import methods_take_no_others
from cutwater.checkpoint.events import Event, ManualTriggerRequested, RequestId, RequestWithdrawn
from cutwater.checkpoint.statistics import CheckpointHistory, CheckpointInfo
from cutwater.control.messages import Progress
from cutwater.duration import Duration, parse_duration
from cutwater.errors import ConfigError, CutwaterError, JobFailed, JobStillRunning
from cutwater.flow.ids import SubtaskId
from cutwater.job.listeners import LISTENERS_SECONDS, Listeners
from cutwater.job.log import JobLog
from cutwater.job.result import JobResult

ENDED = frozenset({"finished", "canceled", "failed", "stopped"})


class Runner(Protocol):
    """What runs the job; the handle only asks."""

    def ask(self, event: Event) -> object | None:
        """Who was asked; None: no attempt is running that could answer."""

    def may_answer(self, asked: object) -> bool:
        """Whether the attempt that was asked still runs. An attempt may end between a question and its answer."""

    def cancel(self) -> None: ...

    def workers(self) -> dict[SubtaskId, tuple[str, int]]: ...


@dataclass(slots=True)
class JobState:
    """Shared between the thread that runs the job and those that watch it; guarded by ``changed``."""

    name: str
    history: CheckpointHistory
    changed: threading.Condition = field(default_factory=threading.Condition)
    status: str = "created"
    detail: str = ""
    attempts: int = 0
    progress: dict[SubtaskId, Progress] = field(default_factory=dict)
    result: JobResult | None = None
    failure: JobFailed | None = None
    answers: dict[RequestId, CheckpointInfo | str] = field(default_factory=dict)
    reader_left: bool = False
    """Nobody reads the driver's standard output any more, where rows were to be printed."""
    log: JobLog = field(default_factory=JobLog)
    listeners: Listeners = field(init=False)

    def __post_init__(self) -> None:
        self.listeners = Listeners(self.log.append)

    def set_status(self, status: str, detail: str = "") -> None:
        with self.changed:
            self.status, self.detail = status, detail
            self.changed.notify_all()

    def explain_running(self, detail: str) -> None:
        """From another thread than the job's: a status that came meanwhile keeps its own detail."""
        with self.changed:
            if self.status == "running":
                self.detail = detail


@methods_take_no_others
class Job:
    """Returned by ``env.start``. All methods may be called from any thread."""

    def __init__(self, state: JobState, runner: Runner) -> None:
        self._state = state
        self._runner = runner
        self._requests = itertools.count(1)

    def __repr__(self) -> str:
        return f"Job({self.name!r}, status={self.status!r}, attempts={self._state.attempts})"

    @property
    def name(self) -> str:
        return self._state.name

    @property
    def status(self) -> str:
        """created, waiting (for slots), running, restarting; in the end finished, canceled, failed or stopped."""
        return self._state.status

    @property
    def detail(self) -> str:
        """More about the status, e.g. what a restarting job recovers from."""
        return self._state.detail

    @property
    def reader_left(self) -> bool:
        """Whether the job was canceled because nobody reads what it tells any more (``... | head -1``)."""
        return self._state.reader_left

    @property
    def log(self) -> Sequence[str]:
        """What happened that a person may want to know: failures, restarts, warnings. The latest ten thousand lines."""
        return self._state.log.lines()

    def log_since(self, seen: int) -> tuple[Sequence[str], int]:
        """The lines behind the first ``seen`` ever logged, and how many were: for whoever follows the log."""
        return self._state.log.since(seen)

    @property
    def progress(self) -> dict[SubtaskId, Progress]:
        """What each subtask reported last."""
        return dict(self._state.progress)

    @property
    def workers(self) -> dict[SubtaskId, tuple[str, int]]:
        """Host and process id of each living subtask's Python worker; empty while no attempt runs."""
        return self._runner.workers()

    def wait(self, timeout: Duration | None = None) -> JobResult:
        """Until the job has ended. Raises JobFailed if it failed, JobStillRunning (a TimeoutError) if ``timeout`` passed."""
        seconds = None if timeout is None else parse_duration("timeout", timeout).total_seconds()
        state = self._state
        state.listeners.about_to_wait()
        with state.changed:
            if not state.changed.wait_for(lambda: state.result is not None or state.failure is not None, seconds):
                raise JobStillRunning(f"Job {self.name!r} is still {state.status} after {timeout}.")
        if state.failure is not None:
            raise state.failure
        assert state.result is not None
        return state.result

    def checkpoints(self) -> list[CheckpointInfo]:
        """Every checkpoint that ended, newest first."""
        return self._state.history.checkpoints()

    @property
    def checkpoint_age(self) -> timedelta | None:
        """Since the latest completed checkpoint; None before the first."""
        at = self._state.history.latest_completed_at
        return None if at is None else timedelta(seconds=max(0.0, time.monotonic() - at))

    def on_checkpoint(self, fn: Callable[[CheckpointInfo], None]) -> None:
        """``fn`` is called with each checkpoint that ends, in order, on a thread of its own."""
        if not callable(fn):
            raise ConfigError(
                f"on_checkpoint({fn!r}): a function is needed that takes one argument, a cw.CheckpointInfo."
            )
        self._state.listeners.add(fn)

    def trigger_checkpoint(self, timeout: Duration = "10 min") -> CheckpointInfo:
        """Take a checkpoint now and wait for it."""
        request = RequestId(next(self._requests))
        return self._await(request, ManualTriggerRequested(request), timeout)

    def _await(self, request: RequestId, event: Event, timeout: Duration) -> CheckpointInfo:
        state = self._state
        until = time.monotonic() + parse_duration("timeout", timeout).total_seconds()
        with state.changed:
            asked = None
            while request not in state.answers and state.status not in ENDED and time.monotonic() < until:
                # Between two attempts nobody can answer, and one may end before it looked: then the next one is asked.
                if asked is None or not self._runner.may_answer(asked):
                    asked = self._runner.ask(event)
                state.changed.wait(min(0.05, max(0.0, until - time.monotonic())))
            answer = state.answers.pop(request, None)
        if answer is None and state.status not in ENDED:
            self._runner.ask(RequestWithdrawn(request, f"not done after {timeout}"))
            raise CutwaterError(f"Job {self.name!r}: no checkpoint: not done after {timeout}")
        state.listeners.settle(LISTENERS_SECONDS)
        match answer:
            case CheckpointInfo():
                return answer
            case str():
                raise CutwaterError(f"Job {self.name!r}: the checkpoint failed: {answer}")
            case None:
                why = "" if state.failure is None else f" {state.failure}"
                raise CutwaterError(f"Job {self.name!r} is {state.status}: no checkpoint can be taken.{why}")

    def end_unread(self) -> None:
        """``cancel``, because nobody reads what the job tells any more: its checkpoints stay, whatever ``on_cancel`` says."""
        self._state.reader_left = True
        self.cancel()

    def cancel(self) -> None:
        """End the job where it stands and wait until it has ended. Its checkpoints stay unless ``on_cancel="delete"``."""
        self._runner.cancel()
        state = self._state
        state.listeners.about_to_wait()
        with state.changed:
            state.changed.wait_for(lambda: state.status in ENDED)
