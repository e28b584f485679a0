"""One attempt on Spark: control server, Spark job, and the thread that serves both until the attempt ends."""

import queue
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import SparkSession

from cutwater.checkpoint.events import Event
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.statistics import CheckpointHistory
from cutwater.config import MemoryStorageSetting
from cutwater.control.driver_server import ControlServer, PeerLost
from cutwater.control.keys import AttemptKeys
from cutwater.control.messages import AbortAttempt, Hello
from cutwater.flow.clock import SystemClock
from cutwater.flow.ids import Attempt, SubtaskId
from cutwater.flow.seal import Seal
from cutwater.job.attempt import AttemptDriver, AttemptEvents, RootCause
from cutwater.job.definition import JobDefinition
from cutwater.job.deployment import Deployment
from cutwater.job.discovery import Discovery
from cutwater.spark.blueprint import Blueprint, pack
from cutwater.spark.exchange import chain_levels, run_pipelined
from cutwater.spark.processes import DeathWatch, confirm_dead, how_it_ended
from cutwater.spark.pulse import Pulse
from cutwater.spark.settings import driver_addresses, wants_protected_network
from cutwater.spark.spark_errors import cause_in, why_canceled
from cutwater.spark.storage_thread import StorageThread
from cutwater.spark.task import RunLevel
from cutwater.spark.worker_starts import WorkerStarts

LEASE_SECONDS = 10.0
JOIN_SECONDS = 30.0
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Finished:
    """All input processed, all output committed, all tasks ended."""


@dataclass(frozen=True, slots=True)
class Failed:
    cause: RootCause
    ran: bool
    """Whether it came to process records."""


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Spark had no free slots for all subtasks at once."""

    reason: str


@dataclass(frozen=True, slots=True)
class Canceled:
    """The user asked for it."""


Outcome = Finished | Failed | NoRoom | Canceled


class SparkAttempt:
    """``run`` blocks until the attempt is over and its workers are known to be dead."""

    def __init__(
        self,
        spark: SparkSession,
        definition: JobDefinition,
        store: JobStore,
        attempt: Attempt,
        incarnation: str,
        history: CheckpointHistory,
        deployment: Deployment,
        events: AttemptEvents,
    ) -> None:
        self._spark = spark
        self._definition = definition
        self._store = store
        self._attempt = attempt
        self._events = events
        self._asked: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._cancel = threading.Event()
        keys = AttemptKeys.generate()
        bind, advertised = driver_addresses(spark)
        self._server = ControlServer(attempt, keys, bind, advertised_host=advertised)
        self._storage_thread = StorageThread(self._server.interrupt)
        self._blueprint = Blueprint(
            definition=definition,
            attempt=attempt,
            incarnation=incarnation,
            address=self._server.address,
            keys=keys.for_workers(),
            storage=store.storage if isinstance(store.storage, FileStorage) else None,
            layout=store.layout,
            max_inline_state=_inline_limit(definition),
            lease_seconds=LEASE_SECONDS,
            seal_key=Seal.new_key() if wants_protected_network(spark) else None,
        )
        self.driver = AttemptDriver(
            definition,
            store,
            attempt,
            history,
            deployment,
            send=self._server.send,
            io=self._storage_thread,
            clock=SystemClock(),
            events=events,
        )
        self._discovery = Discovery(
            definition.sources,
            {uid: definition.plan.vertex(uid).parallelism for uid in definition.sources},
            deployment,
            send=self._server.send,
            log=events.log,
        )
        self._hellos: dict[SubtaskId, Hello] = {}
        self._death_watch = DeathWatch()
        self.worker_starts = WorkerStarts(len(definition.plan.subtasks), time.monotonic())
        self._spark_error: Exception | None = None
        self._pulse = Pulse(LEASE_SECONDS)
        self._group = f"cutwater-{definition.name}-{incarnation}-{attempt}"

    def ask(self, event: Event) -> None:
        """From any thread: a request for the coordinator."""
        self._asked.put(event)
        self._server.interrupt()

    @property
    def storage_work(self) -> threading.Thread:
        """Alive after ``run`` only if the storage did not answer."""
        return self._storage_thread

    def cancel(self) -> None:
        self._cancel.set()
        self._server.interrupt()

    def run(self) -> Outcome:
        packed = pack(self._blueprint)
        job = threading.Thread(target=self._submit, args=(packed,), name=self._group, daemon=True)
        job.start()
        finished = False
        try:
            try:
                outcome = self._serve(job)
            except Exception as error:
                # A fault of the driver itself: the workers must not outlive the attempt because of it.
                outcome = Failed(
                    RootCause(f"driver: {type(error).__name__}: {error}", traceback.format_exc()), ran=False
                )
            finished = isinstance(outcome, Finished)
            self._end(job, outcome)
            return self._rightly_blamed(outcome)
        finally:
            self._storage_thread.finish(lambda: not finished or self._cancel.is_set())
            self._server.close()
            self._death_watch.close()

    # --- the Spark job ------------------------------------------------------------------------------------------------

    def _submit(self, packed: bytes) -> None:
        try:
            self._spark.sparkContext.setJobGroup(self._group, f"Cutwater: {self._definition.name}")
            levels = [
                (len(places), RunLevel(number, packed)) for number, places in enumerate(self._definition.plan.levels)
            ]
            run_pipelined(self._spark, chain_levels(self._spark, levels))
        except Exception as error:
            self._spark_error = error

    # --- until the attempt ends ---------------------------------------------------------------------------------------

    def _serve(self, job: threading.Thread) -> Outcome:
        driver = self.driver
        while True:
            self._pulse.beat(time.monotonic())
            for report in self._server.receive(self._patience()):
                match report:
                    case PeerLost(subtask):
                        self._peer_lost(subtask)
                    case (subtask, Hello() as hello):
                        self._greet(subtask, hello)
                    case (subtask, message):
                        driver.on_message(subtask, message)
            self._storage_thread.deliver()
            while not self._asked.empty():
                driver.handle(self._asked.get())
            driver.tick()
            self._notice_deaths()
            if self._cancel.is_set():
                return Canceled()
            if not job.is_alive():
                return self._after_spark_ended()
            if driver.failure is not None:
                return Failed(driver.failure, driver.started)
            now = time.monotonic()
            self.worker_starts.count(len(self._hellos), now)
            if self.worker_starts.is_hopeless(now):
                return NoRoom(
                    f"{self.worker_starts.missing} of {self.worker_starts.expected} subtasks never reported in"
                )
            if driver.started:
                self._discovery.tick(now)

    def _greet(self, subtask: SubtaskId, hello: Hello) -> None:
        """Answered when all are here and written down: should this driver die, the next one knows whom to outlive (rule 30)."""
        self._hellos[subtask] = hello
        self._death_watch.add(subtask, hello)
        if len(self._hellos) < len(self._definition.plan.subtasks):
            return
        workers = [asdict(each) for each in self._hellos.values()]

        def noted(outcome: Any) -> None:
            if isinstance(outcome, Exception):
                self.driver.fail(RootCause(f"The workers of this attempt could not be written down: {outcome}"))
                return
            for each, process in self._hellos.items():
                self.driver.on_message(each, process)

        self._storage_thread.submit(lambda: self._store.note_workers(workers), noted)

    def _patience(self) -> float:
        if not self._storage_thread.results.empty() or not self._asked.empty():
            return 0.0
        due = self.driver.next_tick
        return POLL_SECONDS if due is None else max(0.0, min(POLL_SECONDS, due - time.monotonic()))

    def _after_spark_ended(self) -> Outcome:
        driver = self.driver
        for report in self._server.receive(0.05):
            if not isinstance(report, PeerLost):
                driver.on_message(*report)
        self._storage_thread.deliver()
        if self._spark_error is None and driver.finishing:
            return Finished()
        self._notice_deaths()
        if driver.failure is not None:
            return Failed(driver.failure, driver.started)
        text = str(self._spark_error) if self._spark_error else "Spark ended the job before its input ended"
        if "INSUFFICIENT_SLOT" in text:
            return NoRoom(cause_in(text))
        return Failed(RootCause(f"Spark: {cause_in(text)}", text), driver.started)

    def _rightly_blamed(self, outcome: Outcome) -> Outcome:
        """Spark ends the workers of a job that it cancels, and their death is seen before its own word about it."""
        if isinstance(outcome, Failed) and not outcome.cause.permanent and self._spark_error is not None:
            why = why_canceled(str(self._spark_error))
            if why is not None:
                return Failed(RootCause(why, outcome.cause.message), outcome.ran)
        return outcome

    def _notice_deaths(self) -> None:
        """Looked for often, because Spark ends the other workers soon after the first died, and its own error is secondary."""
        if self.driver.failure is not None or self.driver.finishing:
            return
        now = time.monotonic()
        frozen = self._pulse.frozen_for(now)
        dead = [
            f"{subtask}: its Python worker (pid {process.pid}) {how_it_ended(frozen, self._server.lease_deadline(subtask), now)}"
            for subtask, process in self._death_watch.dead()
            if subtask not in self.driver.left
        ]
        if dead:
            self.driver.fail(RootCause("; ".join(dead)))

    def _peer_lost(self, subtask: SubtaskId) -> None:
        driver = self.driver
        if subtask in driver.left or driver.finishing:
            return
        process = self._hellos.get(subtask)
        pid = f" (pid {process.pid})" if process else ""
        driver.fail(RootCause(f"{subtask}: its Python worker{pid} died or lost its connection to the driver"))

    # --- the end ------------------------------------------------------------------------------------------------------

    def _end(self, job: threading.Thread, outcome: Outcome) -> None:
        """Whatever happened: nobody of this attempt is left when this returns."""
        if not isinstance(outcome, Finished):
            self._server.broadcast(AbortAttempt(type(outcome).__name__.lower()))
            self._cancel_spark_job()
        self.driver.end(type(outcome).__name__.lower())
        alive = {subtask: process for subtask, process in self._hellos.items() if subtask not in self.driver.left}
        if not isinstance(outcome, Finished):
            confirm_dead(alive.items(), self._server.lease_deadline, self._events.log)
        self._storage_thread.submit(self._store.forget_workers, lambda _: None)
        self._join(job)

    def _join(self, job: threading.Thread) -> None:
        """A job that Spark had not begun when it was canceled begins afterwards, so it is canceled until it has ended."""
        until = time.monotonic() + JOIN_SECONDS
        job.join(POLL_SECONDS)
        while job.is_alive() and time.monotonic() < until:
            self._cancel_spark_job()
            job.join(10 * POLL_SECONDS)

    def _cancel_spark_job(self) -> None:
        with suppress(Exception):  # of a session that was stopped: its jobs are over
            self._spark.sparkContext.cancelJobGroup(self._group)


def _inline_limit(definition: JobDefinition) -> int:
    storage = definition.checkpointing.storage if definition.checkpointing is not None else None
    return storage.max_state if isinstance(storage, MemoryStorageSetting) else 5_000_000
