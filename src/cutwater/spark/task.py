"""What runs inside a Spark task: one subtask with its threads, or a relay."""

import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import psutil
import pyarrow as pa
from pyspark import TaskContext

from cutwater.checkpoint.table_writer import TableWriter
from cutwater.control.messages import (
    CollectedRows,
    Deploy,
    Goodbye,
    Hello,
    Message,
    PrintedLines,
    SlowLoop,
    ToDriver,
)
from cutwater.control.task_client import ControlClient
from cutwater.errors import ControlError
from cutwater.flow.clock import SystemClock
from cutwater.flow.envelope import Row
from cutwater.flow.ids import CheckpointId, SubtaskId
from cutwater.flow.seal import Seal
from cutwater.flow.transport import Emit, Wait
from cutwater.graph.plan import RelayPlace, SubtaskPlace
from cutwater.job.deployment import state_from
from cutwater.spark.background import BackgroundThreads
from cutwater.spark.blueprint import Blueprint, unpack
from cutwater.spark.last_words import close_then_tell, stack_of
from cutwater.spark.transport import ExchangeBroken, ExchangeReader, ExchangeWriter, relay_rows
from cutwater.subtask.failure import failed
from cutwater.subtask.garbage import CalledByTheLoop
from cutwater.subtask.operator_subtask import OperatorSubtask
from cutwater.subtask.relay import Relay
from cutwater.subtask.source_subtask import SourceSubtask
from cutwater.subtask.subtask import Subtask

REPORT_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class RunLevel:
    """The function that Spark calls for each partition of a level."""

    level: int
    packed: bytes

    def __call__(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blueprint = unpack(self.packed)
        context = TaskContext.get()
        assert context is not None
        place = blueprint.definition.plan.levels[self.level][context.partitionId()]
        match place:
            case RelayPlace():
                hops = blueprint.definition.plan.relay_hops(self.level, place)
                yield from relay_rows(iterator, Relay(hops))
            case SubtaskPlace(subtask):
                yield from SubtaskTask(blueprint, subtask, first_level=self.level == 0).run(iterator)


class _Port:
    """The operators' way to the driver."""

    def __init__(self, send: Callable[[ToDriver], None]) -> None:
        self._send = send

    def collected(self, uid: str, checkpoint: CheckpointId, writer: int, rows: bytes) -> None:
        self._send(CollectedRows(uid, checkpoint, writer, (rows,)))

    def printed(self, lines: Sequence[str]) -> None:
        self._send(PrintedLines(tuple(lines)))


class SubtaskTask:
    """One subtask on Spark: its loop is the generator that Spark pulls."""

    def __init__(self, blueprint: Blueprint, subtask: SubtaskId, *, first_level: bool) -> None:
        self._blueprint = blueprint
        self._id = subtask
        self._first_level = first_level
        self._arrived: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._subtask: Subtask | None = None
        self._reader: ExchangeReader | None = None
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._seal = Seal(blueprint.seal_key) if blueprint.seal_key is not None else None

    def run(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blueprint = self._blueprint
        client = ControlClient(
            blueprint.address,
            blueprint.keys.server_public,
            blueprint.keys.client,
            self._id,
            blueprint.attempt,
            self._on_message,
            lease=f"{blueprint.lease_seconds}s",
        )
        threads = BackgroundThreads(client.holds_lease)
        try:
            client.send(Hello(socket.gethostname(), os.getpid(), psutil.Process().create_time()))
            subtask = self._make_subtask(client.send, threads)
            threads.report_to(subtask.mailbox.fail)
            subtask.open(_Port(client.send))
            # Not earlier: the rows that a restored checkpoint had overtaken stand before whatever comes.
            self._start_reader(iterator, subtask)
            threading.Thread(target=self._report, args=(subtask, client, threading.get_ident()), daemon=True).start()
            yield from self._drive(subtask)
            self._wait_for_end_of_input()
            threads.finish()
            subtask.close()
            client.send(subtask.progress())
            client.send(Goodbye())
            client.flush(5.0)
        except (ExchangeBroken, GeneratorExit) as error:
            # Spark fails the job by itself and knows why; this subtask only saw the consequence.
            self._close_after(error, threads)
            raise
        except BaseException as error:
            self._fail(error, client, threads)
            raise
        finally:
            self._done.set()
            client.close()

    def _fail(self, error: BaseException, client: ControlClient, threads: BackgroundThreads) -> None:
        """Closed first: the driver ends this process as soon as it hears of the failure."""
        close_then_tell(lambda: self._close_after(error, threads), lambda: self._tell(client, error))

    def _close_after(self, error: BaseException, threads: BackgroundThreads) -> None:
        """What ``error`` left open. A failure of this is told as a note to the first one, which it must not hide."""
        threads.stop()
        if self._subtask is None:
            return
        try:
            self._subtask.close()
        except BaseException as another:
            error.add_note(f"Closing failed too: {failed(self._id, another).error}")

    def _on_message(self, message: Message) -> None:
        """On the control thread. What comes before the subtask exists is kept for it."""
        with self._lock:
            if self._subtask is None:
                self._arrived.put(message)
            else:
                self._subtask.on_message(message)  # type: ignore[arg-type]

    def _make_subtask(self, send: Callable[[ToDriver], None], threads: BackgroundThreads) -> Subtask:
        first = self._arrived.get()
        if not isinstance(first, Deploy):
            raise ControlError(f"{self._id} was told {type(first).__name__} before Deploy.")
        blueprint = self._blueprint
        setup = blueprint.definition.setup_of(self._id, blueprint.attempt, blueprint.incarnation)
        kind = SourceSubtask if setup.vertex.is_source else OperatorSubtask
        subtask = kind(
            setup,
            state_from(first),
            send=send,
            background=threads,
            writer=TableWriter(
                blueprint.storage,
                blueprint.layout.files_of(self._id, blueprint.attempt),
                limit=blueprint.max_inline_state if blueprint.storage is None else None,
            ),
            clock=SystemClock(),
            garbage=CalledByTheLoop(),
        )
        with self._lock:
            while not self._arrived.empty():
                subtask.on_message(self._arrived.get())  # type: ignore[arg-type]
            self._subtask = subtask
        return subtask

    def _start_reader(self, iterator: Iterator[pa.RecordBatch], subtask: Subtask) -> None:
        if self._first_level:
            for _ in iterator:  # the numbers of range(): nothing but the task itself
                pass
            return
        receiver = subtask.intake if isinstance(subtask, OperatorSubtask) else _NoInput(self._id)
        self._reader = ExchangeReader(
            iterator,
            receiver,
            subtask.mailbox.changed,
            subtask.mailbox.fail,
            self._seal,
        )
        self._reader.start()

    def _drive(self, subtask: Subtask) -> Iterator[pa.RecordBatch]:
        writer = ExchangeWriter(self._seal)
        for step in subtask.steps():
            match step:
                case Emit():
                    yield from writer.batches(step)
                case Wait(seconds):
                    subtask.mailbox.wait(seconds, subtask.has_work)

    def _wait_for_end_of_input(self) -> None:
        if self._reader is not None:
            self._reader.join()

    def _report(self, subtask: Subtask, client: ControlClient, loop: int) -> None:
        """``loop`` is the thread that runs the subtask's loop."""
        while not self._done.wait(REPORT_SECONDS):
            slow = subtask.gap.newly_slow(time.monotonic())
            try:
                client.send(subtask.progress())
                if slow is not None:
                    client.send(SlowLoop(slow, stack_of(loop)))
            except ControlError:
                return

    def _tell(self, client: ControlClient, error: BaseException) -> None:
        try:
            client.send(failed(self._id, error))
            client.flush(2.0)
        except ControlError:
            return


class _NoInput:
    """The receiver of a source below the first level: no row leads to it."""

    def __init__(self, subtask: SubtaskId) -> None:
        self._subtask = subtask

    def offer(self, row: Row) -> bool:
        raise ControlError(f"A row arrived on channel {row.channel} at the source {self._subtask}: the plan is wrong.")
