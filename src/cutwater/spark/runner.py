"""A job on Spark, over all its attempts: where it starts, when it starts again, how it ends."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from cutwater.checkpoint.attempts import AttemptRecord
from cutwater.checkpoint.events import Event, RequestId
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.start import ContinueReserved, Resume, RunEnd, StartFresh
from cutwater.checkpoint.statistics import CheckpointInfo, CheckpointStatus
from cutwater.config import OnCancel
from cutwater.control.messages import Hello
from cutwater.errors import DamagedCheckpoint, JobFailed, StorageError, TakenOver
from cutwater.flow.ids import SubtaskId
from cutwater.job.attempt import RootCause
from cutwater.job.definition import JobDefinition
from cutwater.job.deployment import Deployment
from cutwater.job.handle import JobState
from cutwater.job.listeners import LISTENERS_SECONDS
from cutwater.job.moved_records import MovedRecords
from cutwater.job.result import JobResult
from cutwater.job.standard_output import StandardOutput
from cutwater.restart import AttemptFailure, GiveUp, RestartAfter
from cutwater.spark.attempt import LEASE_SECONDS, Canceled, Failed, Finished, NoRoom, SparkAttempt
from cutwater.spark.processes import confirm_dead
from cutwater.spark.slots import crowding_notices, free_slots, total_slots, was_stopped
from cutwater.spark.starting_point import StartingPoint
from cutwater.spark.storage_calls import StorageCalls


class SparkRunner(threading.Thread):
    """Owns the job's lock from ``__init__`` on, so that a folder in use is refused at the call."""

    def __init__(
        self,
        spark: SparkSession,
        definition: JobDefinition,
        store: JobStore,
        state: JobState,
        *,
        restore: str,
        claim: bool = False,
        allow_non_restored_state: bool,
        session_free: Callable[[], None] = lambda: None,
    ) -> None:
        """``session_free`` is called when the job needs its session no more, before anybody hears of its end."""
        super().__init__(name=f"cutwater-{definition.name}", daemon=True)
        self._spark = spark
        self._definition = definition
        self._store = store
        self._state = state
        self._session_free = session_free
        self._notices = (*definition.notices, *crowding_notices(spark, definition.plan.slots_needed))
        self._attempt: SparkAttempt | None = None
        self._canceled = threading.Event()
        self._failures: list[AttemptFailure] = []
        self._moved = MovedRecords(definition.plan.source_subtasks)
        self._calls = StorageCalls()
        self._output = StandardOutput(self.log, self._reader_left)
        self._lock = store.lock()
        try:
            self._starting_point = StartingPoint(
                definition, store, state, self._moved, allow_non_restored_state=allow_non_restored_state
            )
            self._start = self._starting_point.choose(restore, claim=claim)
        except BaseException:
            self._lock.release()
            raise

    # --- asked from other threads -------------------------------------------------------------------------------------

    def ask(self, event: Event) -> object | None:
        attempt = self._attempt
        if attempt is not None:
            attempt.ask(event)
        return attempt

    def may_answer(self, asked: object) -> bool:
        return self._attempt is asked

    def cancel(self) -> None:
        self._canceled.set()
        attempt = self._attempt
        if attempt is not None:
            attempt.cancel()

    def workers(self) -> dict[SubtaskId, tuple[str, int]]:
        attempt = self._attempt
        if attempt is None:
            return {}
        living = attempt.driver.processes.copy().items()
        return {subtask: (each.host, each.pid) for subtask, each in living if subtask not in attempt.driver.left}

    # --- AttemptEvents ------------------------------------------------------------------------------------------------

    def checkpoint_ended(self, info: CheckpointInfo) -> None:
        with self._state.changed:
            self._state.changed.notify_all()
        if info.status is CheckpointStatus.COMPLETED and info.id is not None:
            self._moved.checkpoint_completed(info.id, info)
        if info.status is CheckpointStatus.FAILED:
            name = "a checkpoint" if info.id is None else f"checkpoint {info.id}"
            self.log(f"{name} failed: {info.failure_reason}")
        self._state.listeners.tell(info)

    def request_ended(self, request: RequestId, outcome: CheckpointInfo | str) -> None:
        with self._state.changed:
            self._state.answers[request] = outcome
            self._state.changed.notify_all()

    def printed(self, lines: Sequence[str]) -> None:
        if not self._state.reader_left:
            self._output.write(lines)

    def _reader_left(self) -> None:
        self._state.reader_left = True
        self.cancel()

    def log(self, line: str) -> None:
        self._state.log.append(line)

    # --- the job's thread ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        began = time.monotonic()
        for notice in self._notices:
            self.log(notice)
        status, failure = "", None
        try:
            status = self._run_attempts()
        except JobFailed as error:
            failure = error
        except BaseException as error:
            # Whatever it is, a sys.exit in user code too: this thread has nobody above it, and somebody waits for the end.
            failure = JobFailed(f"{type(error).__name__}: {error}")
        try:
            if failure is not None:
                self._note_end(RunEnd.FAILED)
        finally:
            # Before anybody hears of the end: whoever waited for it may start the job again at once.
            if not self._calls.release(self._lock.release):
                self.log("the job's folder stays locked until the storage answers")
            self._session_free()
        if failure is None:
            self._finish(status, time.monotonic() - began)
        else:
            self._fail(failure)

    def _outlive_the_driver_before(self) -> None:
        """A driver that died left its workers behind: none of them may touch a sink beside ours (rule 30)."""
        left = self._store.noted_workers(_noted_worker)
        if not left:
            return
        until = time.monotonic() + LEASE_SECONDS
        self._state.set_status("waiting", f"for {len(left)} workers of the driver before to be gone")
        names = [SubtaskId("worker of the driver before", number) for number in range(len(left))]
        confirm_dead(zip(names, left, strict=True), lambda _: until, self.log)
        self._store.forget_workers()

    def _run_attempts(self) -> str:
        self._outlive_the_driver_before()
        start: StartFresh | Resume | ContinueReserved | None = self._start
        waiting_since: float | None = None
        while True:
            if self._canceled.is_set():
                return self._end(RunEnd.CANCELED)
            self._calls.await_answers(self._canceled.is_set)
            if self._canceled.is_set():
                continue
            try:
                record, deployment = self._calls.call(partial(self._begin, start), may_give_up=self._canceled.is_set)
            except (StorageError, OSError) as error:
                if not self._canceled.is_set():
                    self._storage_refused(error)
                continue
            start = None
            if waiting_since is None:
                self._state.attempts += 1
            attempt = SparkAttempt(
                self._spark, self._definition, self._store, record.attempt, record.incarnation,
                self._state.history, deployment, self,
            )  # fmt: skip
            self._attempt = attempt
            if self._canceled.is_set():
                # Asked before there was an attempt that could be told.
                attempt.cancel()
            self._state.set_status("running")
            began = time.monotonic()
            watch = threading.Thread(target=self._watch_progress, args=(attempt,), daemon=True)
            watch.start()
            outcome = attempt.run()
            self._attempt = None
            if attempt.storage_work.is_alive():
                self._calls.give_up(attempt.storage_work)
            self._state.progress = dict(attempt.driver.progress)
            match outcome:
                case Finished():
                    return self._end(RunEnd.FINISHED)
                case Canceled():
                    return self._end(RunEnd.CANCELED)
                case NoRoom(reason):
                    waiting_since = waiting_since or time.monotonic()
                    self._wait_for_slots(waiting_since, reason)
                case Failed(cause, ran):
                    waiting_since = None
                    self._failures.append(AttemptFailure(began if ran else None, time.monotonic()))
                    self._restart_or_raise(cause)

    def _begin(self, start: StartFresh | Resume | ContinueReserved | None) -> tuple[AttemptRecord, Deployment]:
        record = self._store.acquire_attempt(start)
        self._store.delete_leftovers()
        return record, self._starting_point.deploy(start, record.incarnation)

    def _watch_progress(self, attempt: SparkAttempt) -> None:
        awaited = ""
        while self._attempt is attempt:
            self._state.progress = dict(attempt.driver.progress)
            if str(attempt.worker_starts) != awaited:
                awaited = str(attempt.worker_starts)
                self._state.explain_running(awaited)
            time.sleep(0.2)

    # --- how it goes on -----------------------------------------------------------------------------------------------

    def _restart_or_raise(self, cause: RootCause) -> None:
        if cause.permanent:
            raise _job_failed(cause, "No restart: another attempt would fail in the same way.")
        if was_stopped(self._spark):
            stopped = "The Spark session was stopped, or its Java process ended, while the job ran on it."
            consequence = f"No restart: start the job again, on a new session.\nIts attempt saw: {cause.message}"
            raise _job_failed(RootCause(stopped, cause.trace), consequence)
        decision = self._definition.restart.next_restart(self._failures, time.monotonic(), random.random)
        match decision:
            case GiveUp(reason):
                raise _job_failed(cause, f"No restart: {reason}.")
            case RestartAfter(delay):
                self.log(f"{cause.message}; restarting in {delay.total_seconds():g} s")
                self._state.set_status("restarting", cause.message)
                self._canceled.wait(delay.total_seconds())

    def _storage_refused(self, error: StorageError | OSError) -> None:
        """A storage that fails while the job restarts is a failure like another. One that fails at the first start, or has
        lost what it was given, or is another driver's now, is told at once."""
        if self._state.attempts == 0 or isinstance(error, DamagedCheckpoint | TakenOver):
            raise error
        self._failures.append(AttemptFailure(None, time.monotonic()))
        self._restart_or_raise(RootCause(f"The next attempt could not begin: {error}"))

    def _wait_for_slots(self, since: float, reason: str) -> None:
        needed = self._definition.plan.slots_needed
        while not self._canceled.is_set():
            if time.monotonic() - since > self._definition.slot_timeout.total_seconds():
                raise JobFailed(
                    f"Spark has too few free slots: {needed} are needed at once, {free_slots(self._spark)} of "
                    f"{total_slots(self._spark)} are free, and no more came free for {self._definition.slot_timeout}. Free "
                    f"executors or lower the parallelism. ({reason})"
                )
            free = free_slots(self._spark)
            self._state.set_status("waiting", f"waiting for {max(0, needed - free)} of {needed} slots")
            self._canceled.wait(0.5)
            if free_slots(self._spark) >= needed:
                return

    # --- how it ends --------------------------------------------------------------------------------------------------

    def _end(self, end: RunEnd) -> str:
        checkpointing = self._definition.checkpointing
        status = end.value
        if self._state.attempts == 0:
            return status  # canceled before the first attempt: there is no run whose end could be written down
        if end is RunEnd.FINISHED:
            self._calls.call(lambda: self._store.mark_ended(end), may_give_up=self._canceled.is_set)
        elif checkpointing is None or checkpointing.on_cancel is not OnCancel.DELETE or self._state.reader_left:
            self._note_end(end)
        elif self._note_end(RunEnd.DELETED):
            self._delete_checkpoints()
        return status

    def _delete_checkpoints(self) -> None:
        """The run is noted as one that left nothing: what cannot be deleted now is never restored."""

        def delete() -> None:
            completed = {each.id for each in self._store.completed()}
            self._store.delete_checkpoints(sorted(completed | self._store.set_aside))

        try:
            self._calls.call(delete, may_give_up=lambda: True)
        except Exception as error:
            self.log(f"the checkpoints could not all be deleted: {error}")

    def _note_end(self, end: RunEnd) -> bool:
        """Of a run that did not finish. If it cannot be noted, the next start takes this driver for dead and resumes too."""
        if self._state.attempts == 0:
            return False  # how the run before ended must stay as it is
        try:
            self._calls.call(lambda: self._store.mark_ended(end), may_give_up=lambda: True)
            return True
        except Exception as error:
            self.log(f"the end could not be written down: {error}")
            return False

    def _finish(self, status: str, seconds: float) -> None:
        state, definition = self._state, self._definition
        moved = self._moved.so_far(state.progress)
        schemas = {name: output.schema for name, output in definition.collected.items()}
        result = JobResult(
            status=status,
            attempts=state.attempts,
            checkpoints=state.history.counts[CheckpointStatus.COMPLETED],
            records_in=moved.read,
            records_out=moved.written,
            seconds=seconds,
            _collected=lambda name: self._store.collected.read(definition.collected[name].uid),
            _schemas=schemas,
        )
        state.listeners.settle(LISTENERS_SECONDS)
        with state.changed:
            state.result, state.status, state.detail = result, status, ""
            state.changed.notify_all()

    def _fail(self, failure: JobFailed) -> None:
        self._state.listeners.settle(LISTENERS_SECONDS)
        with self._state.changed:
            self._state.failure, self._state.status, self._state.detail = failure, "failed", str(failure)
            self._state.changed.notify_all()


def _noted_worker(noted: Any) -> Hello:
    """Another version may have noted more of it."""
    return Hello(str(noted["host"]), int(noted["pid"]), float(noted["process_started"]))


def _job_failed(cause: RootCause, consequence: str) -> JobFailed:
    trace = f"\n\n{cause.trace}" if cause.trace else ""
    return JobFailed(f"{cause.message}\n{consequence}{trace}")
