"""A subtask as a Spark task runs it, over a real control channel, without Spark: how it fails, and what it closes."""

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.checkpoint.layout import JobLayout
from cutwater.connectors.sink import PlainSink
from cutwater.control.driver_server import ControlServer, PeerLost
from cutwater.control.keys import AttemptKeys
from cutwater.control.messages import (
    Acknowledge,
    CheckpointCompleted,
    Finish,
    Goodbye,
    Hello,
    InputEnded,
    Message,
    Running,
    StartProcessing,
    SubtaskFailed,
    TriggerCheckpoint,
)
from cutwater.flow.ids import Attempt, CheckpointId, SubtaskId
from cutwater.job.deployment import Deployment
from cutwater.spark.blueprint import Blueprint
from cutwater.spark.task import SubtaskTask

DEADLINE_SECONDS = 30.0
SOURCE = SubtaskId("numbers", 0)
FIRST = CheckpointId(1)


class Journal:
    """What user code was asked to do. Shared, because nothing is shipped anywhere here."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.breaks_at: str | None = None
        self.error: BaseException = RuntimeError("boom")

    def note(self, line: str) -> None:
        self.lines.append(line)
        if line == self.breaks_at:
            raise self.error


class Numbers(cw.Source):
    schema = "n long"

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def splits(self) -> list[int]:
        return [0]

    def open(self, split: int, position: Any, ctx: Any) -> "NumbersReader":
        return NumbersReader(self.journal)


class NumbersReader(cw.SplitReader):
    def __init__(self, journal: Journal) -> None:
        self.journal, self.given = journal, 0

    def next_batch(self, max_rows: int, timeout: timedelta) -> Any:
        self.journal.note(f"read {self.given}")
        if self.given == 2:
            return cw.END
        self.given += 1
        return pa.record_batch({"n": [self.given]})

    def position(self) -> int:
        return self.given

    def checkpoint_completed(self, checkpoint_id: int, position: int) -> None:
        self.journal.note(f"read up to {position} for ever")

    def close(self) -> None:
        self.journal.note("reader closed")


class Passing(cw.Process):
    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        self.journal.note(f"process {row.n}")
        yield row

    def close(self) -> None:
        self.journal.note("function closed")


class Writing(PlainSink):
    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def write(self, batch: pa.RecordBatch) -> None:
        self.journal.note("write")

    def close(self) -> None:
        self.journal.note("sink closed")


class Driver:
    """Says what the driver would say to the one subtask, and keeps what it hears."""

    def __init__(self, journal: Journal) -> None:
        env = cw.Environment(parallelism=1, checkpointing=cw.Checkpointing("10 min", storage="memory"))
        stream = env.read(Numbers(journal), uid="numbers").process(Passing(journal), "n long").uid("passing")
        stream.write(Writing(journal), uid="out")
        keys = AttemptKeys.generate()
        self.server = ControlServer(Attempt(1), keys, "127.0.0.1")
        self.heard: list[Message] = []
        blueprint = Blueprint(
            definition=env.define("job", 1),
            attempt=Attempt(1),
            incarnation="first",
            address=self.server.address,
            keys=keys.for_workers(),
            storage=None,
            layout=JobLayout("job"),
            max_inline_state=1_000_000,
            lease_seconds=DEADLINE_SECONDS,
        )
        self.raised: BaseException | None = None
        self.task = SubtaskTask(blueprint, SOURCE, first_level=True)
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            list(self.task.run(iter(())))
        except BaseException as error:
            self.raised = error

    def serve(self) -> None:
        """Until the task has ended."""
        self.thread.start()
        deadline = time.monotonic() + DEADLINE_SECONDS
        try:
            while True:
                ended = not self.thread.is_alive()
                for report in self.server.receive(0.05):
                    if not isinstance(report, PeerLost):
                        self.heard.append(report[1])
                        self._answer(report[1])
                if ended:
                    return
                assert time.monotonic() < deadline, f"the task did not end: {self.heard}"
        finally:
            self.server.close()

    def _answer(self, message: Message) -> None:
        match message:
            case Hello():
                splits = {SOURCE: [{"split": 0, "position": None}]}
                self.server.send(SOURCE, Deployment(splits=splits).message(SOURCE))
            case Running():
                self.server.send(SOURCE, StartProcessing())
            case InputEnded():
                self.server.send(
                    SOURCE, TriggerCheckpoint(FIRST, time.time(), unaligned=False, savepoint=False, stop=False)
                )
            case Acknowledge():
                # In one breath: Finish may overtake the commit thread, which hears of the completion first.
                self.server.send(SOURCE, CheckpointCompleted(FIRST))
                self.server.send(SOURCE, Finish())

    @property
    def failure(self) -> SubtaskFailed:
        (found,) = [message for message in self.heard if isinstance(message, SubtaskFailed)]
        return found


CLOSED = ["function closed", "reader closed", "sink closed"]


def test_at_the_end_everything_is_closed_and_the_reader_heard_of_the_final_checkpoint() -> None:
    journal = Journal()
    driver = Driver(journal)
    driver.serve()
    assert driver.raised is None
    assert isinstance(driver.heard[-1], Goodbye)
    assert "read up to 2 for ever" in journal.lines
    assert [journal.lines.count(line) for line in CLOSED] == [1, 1, 1]


def test_a_process_that_goes_on_lets_go_of_a_subtask_that_ended_and_collects_garbage_as_before() -> None:
    thresholds = gc.get_threshold()

    def ended() -> "weakref.ref[Any]":
        driver = Driver(Journal())
        driver.serve()
        assert driver.raised is None
        return weakref.ref(driver.task._subtask)

    subtask = ended()
    assert gc.get_threshold() == thresholds
    deadline = time.monotonic() + DEADLINE_SECONDS
    while gc.collect() >= 0 and subtask() is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("breaks_at", "uid"), [("read 1", "numbers"), ("process 1", "passing"), ("write", "out")])
def test_a_failure_closes_everything_before_the_driver_hears_of_it(breaks_at: str, uid: str) -> None:
    journal = Journal()
    journal.breaks_at = breaks_at
    driver = Driver(journal)
    driver.serve()
    assert driver.raised is not None
    assert [journal.lines.count(line) for line in CLOSED] == [1, 1, 1]
    assert driver.failure.uid == uid
    assert "RuntimeError: boom" in driver.failure.error
    assert (driver.failure.user_line or "").startswith("test_task.py:")


@pytest.mark.parametrize("error", [SystemExit(4), KeyboardInterrupt()])
@pytest.mark.parametrize("breaks_at", ["read 1", "process 1", "write"])
def test_an_exit_in_user_code_is_told_with_its_line(breaks_at: str, error: BaseException) -> None:
    journal = Journal()
    journal.breaks_at, journal.error = breaks_at, error
    driver = Driver(journal)
    driver.serve()
    assert [journal.lines.count(line) for line in CLOSED] == [1, 1, 1]
    assert type(error).__name__ in driver.failure.error
    assert (driver.failure.user_line or "").startswith("test_task.py:")


def test_a_close_that_fails_keeps_no_other_from_being_closed_and_hides_no_cause() -> None:
    journal = Journal()
    journal.breaks_at = "write"

    class Stubborn(Passing):
        def close(self) -> None:
            super().close()
            raise OSError("cannot be closed")

    driver = Driver(journal)
    driver.task._blueprint.definition.plan.vertex("numbers").members[1].body.fn = Stubborn(journal)  # type: ignore[attr-defined]
    driver.serve()
    assert [journal.lines.count(line) for line in CLOSED] == [1, 1, 1]
    assert "RuntimeError: boom" in driver.failure.error
    assert "Closing failed too: OSError: cannot be closed" in driver.failure.trace
