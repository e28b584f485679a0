"""The asynchronous part of a snapshot: store what the cut froze, then acknowledge."""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from cutwater.checkpoint.snapshot import InFlightEdge, StoredInFlight, StoredOperator, SubtaskMetrics, SubtaskSnapshot
from cutwater.control.messages import Acknowledge, Decline, ToDriver
from cutwater.flow.clock import Clock
from cutwater.flow.ids import CheckpointId, SubtaskId
from cutwater.operators.operator import OperatorSnapshot
from cutwater.state.stored import StoredTable
from cutwater.subtask.chain import OperatorFailure, failures_of
from cutwater.subtask.cut_mark import Alignment
from cutwater.subtask.freezing import without_tables
from cutwater.subtask.in_flight import RecordedTable
from cutwater.subtask.setup import Resumed, TableWriter

Json = Any
Tables = Mapping[tuple[str, str], StoredTable]
"""By uid and state."""


@dataclass(frozen=True, slots=True)
class CutTimes:
    """Measured around the cut, in seconds."""

    start_delay: float
    alignment: Alignment
    sync: float
    longest_gap: float


@dataclass(frozen=True, slots=True)
class FrozenCut:
    """What the loop hands to the snapshot thread."""

    checkpoint: CheckpointId
    base: CheckpointId | None
    """The latest checkpoint of which the loop knew that it completed: files of none but it are referenced (rule 38)."""
    finished: bool
    operators: Mapping[str, OperatorSnapshot]
    times: CutTimes
    records_in: int
    records_written: int
    waits: bool = False
    """The loop goes on only when all is stored, so that storing is part of the synchronous part."""
    rows_follow: bool = False
    """It is acknowledged when the rows that it overtook are stored too."""
    unaligned: bool = False
    given_up: bool = False
    """Nobody needs its state any more, and it is gone. Its transactions are: their rows are in no other."""


class CutInLine:
    """Waits for the snapshot thread, which may wait for the storage: longer than the checkpoint is wanted."""

    def __init__(self, cut: FrozenCut) -> None:
        self._cut = cut
        self._lock = threading.Lock()
        self._is_taken = False

    def take(self) -> FrozenCut:
        with self._lock:
            self._is_taken = True
            return self._cut

    def give_up(self) -> None:
        """Its state is let go, unless it is being stored by now."""
        with self._lock:
            if not self._is_taken and not self._cut.given_up:
                rest = {uid: without_tables(frozen) for uid, frozen in self._cut.operators.items()}
                self._cut = replace(self._cut, operators=rest, given_up=True)


@dataclass(frozen=True, slots=True)
class _Stored:
    """State that waits for the rows that belong to it."""

    cut: FrozenCut
    operators: tuple[StoredOperator, ...]
    attachments: tuple[bytes, ...]
    seconds: float


class Snapshotting:
    """``store`` runs on the snapshot thread, one cut after the other."""

    def __init__(
        self,
        subtask: SubtaskId,
        writer: TableWriter,
        clock: Clock,
        send: Callable[[ToDriver], None],
        fail: Callable[[BaseException], None],
        resumed: Resumed | None = None,
        *,
        incremental: bool,
    ) -> None:
        self._subtask = subtask
        self._writer = writer
        self._clock = clock
        self._send = send
        self._fail = fail
        self._incremental = incremental
        self._stored: dict[CheckpointId, Tables] = {} if resumed is None else {resumed.checkpoint: _tables_of(resumed)}
        """Of this subtask, in the checkpoints that later ones may build on. Belongs to the thread that stores them."""
        self._unwanted: deque[CheckpointId] = deque()
        """Given up since a cut was taken out of the line: nothing builds on them."""
        self._waiting: dict[CheckpointId, _Stored] = {}
        self._in_line: dict[CheckpointId, CutInLine] = {}
        self._rows_in_line: dict[CheckpointId, RecordedTable] = {}
        """Whoever takes them out has them: the snapshot thread to store them, or the loop to let them go."""

    def line_up(self, cut: FrozenCut) -> Callable[[], None]:
        """By the loop. What is returned stores it, in its turn, on the snapshot thread; or at once, if the loop waits."""
        checkpoint = cut.checkpoint
        waiting = self._in_line[checkpoint] = CutInLine(cut)

        def store() -> None:
            del self._in_line[checkpoint]
            self._drop_unwanted()
            self.store(waiting.take())

        return store

    def line_up_rows(
        self, checkpoint: CheckpointId, rows: RecordedTable, edges: tuple[InFlightEdge, ...], alignment: Alignment
    ) -> Callable[[], None]:
        """By whoever brings the last barrier, behind ``line_up``. What is returned stores them on the snapshot thread, in its
        turn, and has no hold on them until then."""
        self._rows_in_line[checkpoint] = rows

        def store() -> None:
            wanted = self._rows_in_line.pop(checkpoint, None)
            if wanted is None:
                self.forget(checkpoint)
            else:
                self.store_rows(checkpoint, wanted, edges, alignment)

        return store

    def give_up(self, checkpoint: CheckpointId) -> None:
        """By the loop, when no rows of it can be lined up any more. What is stored already, or being stored, nobody refers
        to."""
        waiting = self._in_line.get(checkpoint)
        if waiting is not None:
            waiting.give_up()
        self._unwanted.append(checkpoint)
        self._rows_in_line.pop(checkpoint, None)
        self.forget(checkpoint)

    def store(self, cut: FrozenCut) -> None:
        """A state that cannot be stored declines the checkpoint; output that cannot be prepared fails the subtask.

        The difference: declined state is covered by the next checkpoint, but rows of a transaction that was not prepared
        would be missing from it.
        """
        began = self._clock.monotonic()
        self._stored = {id: tables for id, tables in self._stored.items() if cut.base is None or id >= cut.base}
        try:
            stored, attachments = self._store_operators(cut)
        except OperatorFailure as failure:
            self._fail(failure)
        except Exception as error:
            self._send(Decline(cut.checkpoint, f"{type(error).__name__}: {error}"))
        else:
            ready = _Stored(cut, stored, attachments, self._clock.monotonic() - began)
            if cut.rows_follow and not cut.given_up:
                self._waiting[cut.checkpoint] = ready
            elif not cut.given_up:
                self._acknowledge(ready)
        finally:
            for frozen in cut.operators.values():
                for table in frozen.tables:
                    table.release()

    def store_rows(
        self, checkpoint: CheckpointId, rows: RecordedTable, edges: tuple[InFlightEdge, ...], alignment: Alignment
    ) -> None:
        """What ``checkpoint`` overtook is complete, with the last of its barriers. Comes behind its ``store``, which may have
        failed."""
        waiting = self._waiting.pop(checkpoint, None)
        if waiting is None:
            return
        began = self._clock.monotonic()
        try:
            table, attachments = self._writer.write(checkpoint, self._subtask.vertex, rows, None)
        except Exception as error:
            self._send(Decline(checkpoint, f"{type(error).__name__}: {error}"))
            return
        seconds = waiting.seconds + self._clock.monotonic() - began
        cut = replace(waiting.cut, times=replace(waiting.cut.times, alignment=alignment))
        ready = replace(waiting, cut=cut, attachments=(*waiting.attachments, *attachments), seconds=seconds)
        in_flight = StoredInFlight(edges, rows.counts(len(edges)), table) if table.rows else None
        self._acknowledge(ready, in_flight)

    def _drop_unwanted(self) -> None:
        """Before a cut is taken out of the line: those that were given up while they were stored are stored by now."""
        while self._unwanted:
            self._stored.pop(self._unwanted.popleft(), None)

    def forget(self, checkpoint: CheckpointId) -> None:
        """Given up: no rows follow."""
        self._waiting.pop(checkpoint, None)

    def _acknowledge(self, ready: _Stored, in_flight: StoredInFlight | None = None) -> None:
        cut, operators = ready.cut, ready.operators
        snapshot = SubtaskSnapshot(self._subtask.vertex, self._subtask.index, cut.finished, operators, in_flight)
        before = {file.file for table in self._base(cut).values() for file in table.files}
        if self._incremental:
            self._stored[cut.checkpoint] = {(op.uid, table.state): table for op in operators for table in op.tables}
        metrics = SubtaskMetrics(
            start_delay=cut.times.start_delay,
            alignment=cut.times.alignment.seconds,
            sync=cut.times.sync + (ready.seconds if cut.waits else 0.0),
            asynchronous=0.0 if cut.waits else ready.seconds,
            state_bytes=snapshot.size - snapshot.in_flight_bytes,
            in_flight_bytes=snapshot.in_flight_bytes,
            processed_bytes=cut.times.alignment.processed_bytes,
            longest_gap=cut.times.longest_gap,
            records_in=cut.records_in,
            records_written=cut.records_written,
            written_bytes=sum(file.size for file in snapshot.files() if file.file not in before)
            - snapshot.in_flight_bytes,
            unaligned=cut.unaligned,
        )
        self._send(Acknowledge(cut.checkpoint, asdict(snapshot), asdict(metrics), ready.attachments, cut.base))

    def _store_operators(self, cut: FrozenCut) -> tuple[tuple[StoredOperator, ...], tuple[bytes, ...]]:
        base = self._base(cut)
        operators: list[StoredOperator] = []
        attachments: list[bytes] = []
        # Transactions first: a storage error must not keep one from being prepared.
        inlines: dict[str, Json] = {}
        for uid, frozen in cut.operators.items():
            with failures_of(uid):
                inlines[uid] = frozen.inline() if callable(frozen.inline) else frozen.inline
        for uid, frozen in cut.operators.items():
            tables = []
            for table in frozen.tables:
                stored, attached = self._writer.write(cut.checkpoint, uid, table, base.get((uid, table.name)))
                tables.append(stored)
                attachments.extend(attached)
            operators.append(StoredOperator(uid, inlines[uid], tuple(tables)))
        return tuple(operators), tuple(attachments)

    def _base(self, cut: FrozenCut) -> Tables:
        return {} if cut.base is None else self._stored.get(cut.base, {})


def _tables_of(resumed: Resumed) -> Tables:
    return {(uid, table.state): table for uid, state in resumed.states.items() for table in state.stored}
