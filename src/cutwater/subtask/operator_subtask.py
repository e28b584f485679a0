"""A subtask that reads channels."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from cutwater.barrier.alignment import WaitingForFirstBarrier
from cutwater.barrier.tracking import BarrierTracking
from cutwater.barrier.unaligned import Aligning
from cutwater.control.messages import CutNow, Decline, RequestPause, RequestResume, TriggerCheckpoint
from cutwater.errors import ControlError
from cutwater.flow.batches import joined
from cutwater.flow.envelope import Row, RowKind, read_data
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import key_group_range
from cutwater.flow.transport import Step, Wait
from cutwater.flow.watermarks import MIN_WATERMARK, CombinedWatermark
from cutwater.operators.operator import ALL_INPUT
from cutwater.subtask.cut_mark import CutMark
from cutwater.subtask.in_flight import Lane, RecordedTable, Replay
from cutwater.subtask.intake import Intake, IntakeEvents
from cutwater.subtask.limits import KIB
from cutwater.subtask.recording import Recording
from cutwater.subtask.setup import Guarantee, SubtaskSetup
from cutwater.subtask.snapshotting import FrozenCut
from cutwater.subtask.subtask import Steps, Subtask

SMALL_ROWS_BYTES = 256 * KIB
STAND_STILL_SECONDS = 0.3
"""At most: behind an unaligned cut the reader needs the interpreter more than the loop does (rule 14)."""
OTHERS_SECONDS = 0.03
"""At most so long storing waits for the barriers of others."""


class OperatorSubtask(Subtask):
    """Takes the inbox in order: data in slices, cut marks as cuts, END in its turn."""

    _reads_channels = True

    def __init__(self, setup: SubtaskSetup, *args: Any, **kwargs: Any) -> None:
        super().__init__(setup, *args, **kwargs)
        channels = [incoming.channel for incoming in setup.inputs]
        live = frozenset(channels)
        self._waiting_for_end = set(channels)
        self._watermark = CombinedWatermark(incoming.channel for incoming in setup.inputs if incoming.tells_time)
        self._begun = False
        """Whether the operators know that all subtasks are open."""
        self._told = (MIN_WATERMARK, False)
        """The watermark that the operators know of, and whether they know that no input delivers."""
        self._drain = True
        self._schema = {incoming.channel: setup.input_schemas[incoming.edge] for incoming in setup.inputs}
        self._entry = {incoming.channel: self._chain.entry(incoming.port) for incoming in setup.inputs}
        paces = {incoming.port: self._new_pace() for incoming in setup.inputs}
        self._pace = {incoming.channel: paces[incoming.port] for incoming in setup.inputs}
        """One for each port: the cheap rows of one input say nothing of those of another."""
        self._alike = {
            incoming.channel: frozenset(
                other.channel
                for other in setup.inputs
                if other.port == incoming.port and self._schema[other.channel] == self._schema[incoming.channel]
            )
            for incoming in setup.inputs
        }
        edges = sorted(setup.input_edges)
        self._edges = tuple(setup.input_edges[number] for number in edges)
        self._lanes = {
            incoming.channel: Lane(edges.index(incoming.edge), incoming.sender.index) for incoming in setup.inputs
        }
        self._unstored: FrozenCut | None = None
        """Frozen, and not yet handed to the snapshot thread."""
        self._in_hand: Callable[[], Sequence[Row]] = list
        """What was taken from the inbox and is not processed: an unaligned cut takes it along."""
        self._awaits: CheckpointId | None = None
        """Stands still until the barriers of this one have arrived."""
        aligned = Aligning(WaitingForFirstBarrier(live))
        self.intake = Intake(
            channels,
            aligned if setup.guarantee is Guarantee.EXACTLY_ONCE else BarrierTracking(live),
            setup.limits,
            self.mailbox.changed,
            self._clock,
            IntakeEvents(
                pause=lambda channel: self._send(RequestPause(channel)),
                resume=lambda channel: self._send(RequestResume(channel)),
                abandon=lambda checkpoint, reason: self._send(Decline(checkpoint, reason)),
                recorded=self._store_rows,
                dropped=self._forget_rows,
            ),
            setup.spill_folder,
        )

    def _open_input(self) -> None:
        self.intake.replay(self._restored_rows())

    def _begin(self) -> None:
        self.intake.begin()
        super()._begin()

    def _restored_rows(self) -> Iterator[Row]:
        setup = self._setup
        own = key_group_range(setup.subtask.index, setup.vertex.parallelism, setup.max_parallelism)
        for rows in self._state.in_flight:
            restore = rows.restore
            channels = {each.sender.index: each.channel for each in setup.inputs if each.edge == restore.number}
            replay = Replay(
                restore.stored,
                setup.input_schemas[restore.number],
                next(iter(channels.values())),
                channels if restore.same_senders else {},
                next(each.key for each in setup.inputs if each.edge == restore.number) if restore.narrowed else (),
            )
            yield from replay.rows(rows.batches(), own, setup.max_parallelism)

    def _store_soon(self, cut: FrozenCut, pause: float = 0.0) -> None:
        """Overtaking, its barriers come first: until they are there, the reader needs the interpreter (rule 14)."""
        if cut.rows_follow:
            self._unstored = cut
        else:
            super()._store_soon(cut, pause)

    def _store_now(self, pause: float = 0.0) -> None:
        """Called by the loop and, with what the barriers bring, by others: whoever comes first."""
        with self.mailbox.changed:
            cut, self._unstored = self._unstored, None
            if cut is not None:
                super()._store_soon(cut, pause)

    def _forget_rows(self, checkpoint: CheckpointId) -> None:
        self._store_now()
        self._background.snapshot(lambda: self._snapshotting.forget(checkpoint))

    def _store_rows(self, recording: Recording) -> None:
        """All subtasks cut at once, and barriers are still on their way to others: it waits about as long again, so that it
        does not take the processors from them."""
        self._store_now(pause=min(recording.alignment.seconds, OTHERS_SECONDS))
        table = RecordedTable(recording.rows, self._lanes)
        self._background.snapshot(
            self._snapshotting.line_up_rows(recording.checkpoint, table, self._edges, recording.alignment)
        )

    def _triggered(self, trigger: TriggerCheckpoint) -> None:
        if trigger.unaligned:
            self.intake.request_cut(trigger.checkpoint, trigger.triggered_at)
        else:
            super()._triggered(trigger)

    def _out_of_time(self, cut: CutNow) -> None:
        self.intake.request_cut(cut.checkpoint, cut.triggered_at)

    def _abort(self, checkpoint: CheckpointId) -> None:
        self.intake.abort(checkpoint)

    def idle_seconds(self) -> float | None:
        return None

    def has_work(self) -> bool:
        if self.mailbox.pending or self.mailbox.finished or self._must_cut():
            return True
        if self._awaits is not None:
            return self.intake.recording != self._awaits
        must_begin = self.mailbox.started and not self._begun
        return not self._paused() and (self._stands_still or must_begin or self.intake.has_items())

    @property
    def held_bytes(self) -> int:
        return self.intake.held_bytes

    @property
    def inbox_bytes(self) -> int:
        return self.intake.inbox_bytes

    def _on_trigger(self, trigger: TriggerCheckpoint) -> Iterator[Step]:
        """Only a subtask whose input ended is triggered directly; for others the barriers are the trigger."""
        if self._ended and self.intake.begin_cut(trigger.checkpoint):
            yield from self._cut_now(trigger)

    def _must_cut(self) -> bool:
        return self.intake.due_cut is not None

    def _cut_between_steps(self) -> Iterator[Step]:
        yield from self._cut_if_due()

    def _cut_if_due(self) -> Iterator[Step]:
        if (mark := self.intake.due_cut) is not None:
            yield from self._cut(mark, self._in_hand())

    def _taken(self, mark: CutMark, rest: Sequence[Row]) -> None:
        if mark.unaligned:
            self.intake.record(mark, rest)
        else:
            self.intake.cut_taken(mark.checkpoint)

    def _after_cut(self, mark: CutMark) -> Iterator[Step]:
        """Unaligned: stands still until its barriers are there, so that they come soon and little comes behind them."""
        until = self._clock.monotonic() + STAND_STILL_SECONDS
        self._awaits = mark.checkpoint
        while self.intake.recording == mark.checkpoint and not (self.mailbox.pending or self.mailbox.finished):
            if (left := until - self._clock.monotonic()) <= 0:
                break
            yield Wait(left)
        self._awaits = None
        self._store_now()

    def _work(self) -> Steps:
        if self.mailbox.started and not self._begun:
            self._begun = True
            self._chain.start()
        item = self.intake.take()
        match item:
            case None:
                if not self._ended:
                    # Nothing is near that it could be combined with: who rests sends what is let go.
                    self._chain.let_go()
                    # What came behind a barrier waits here, and is no silence.
                    if self.intake.held_bytes == 0:
                        self._chain.asked((ALL_INPUT,), in_vain=True)
                return False
            case CutMark():
                yield from self._cut(item)
            case Row(kind=RowKind.DATA) if self._ended:
                self._drop_repeated(item)
            case Row(kind=RowKind.DATA):
                yield from self._process(item)
            case Row(kind=RowKind.WATERMARK):
                self._watermark.advance(item.channel, item.mark)
                yield from self._tell_time()
            case Row(kind=RowKind.IDLE):
                self._watermark.rest(item.channel)
                yield from self._tell_time()
            case Row(kind=RowKind.END):
                # Finished subtasks restore as finished and re-emit END without drain having any effect on them.
                self._drain = self._drain and bool(item.mark)
                self._waiting_for_end.discard(item.channel)
                if item.mark:
                    self._watermark.remove(item.channel)
                if self._waiting_for_end:
                    yield from self._tell_time()
                elif not self._ended:
                    yield from self._end(drain=self._drain)
            case _:
                pass
        return True

    def _tell_time(self) -> Iterator[Step]:
        """To the operators, when it changed."""
        combined = self._watermark
        told_time, told_idle = self._told
        if self._ended or (combined.time == told_time and combined.idle == told_idle):
            return
        self._told = (combined.time, combined.idle)
        if combined.time > told_time or (told_idle and not combined.idle):
            yield from self._stepwise(self._chain.advancing(combined.time))
        if combined.idle:
            self._chain.rest()

    def _drop_repeated(self, row: Row) -> None:
        """Without alignment a cut may come when all input ended, though upstream was cut before: after a restore upstream
        sends again what this subtask, restored as finished, had processed. Aligned cuts leave nothing to repeat."""
        if self._setup.guarantee is Guarantee.EXACTLY_ONCE:
            raise ControlError(f"{self._setup.subtask} got data on channel {row.channel} after the end of its input.")

    def _process(self, row: Row) -> Iterator[Step]:
        rows = self._taken_together(row)
        batches = [read_data(each, self._schema[each.channel]) for each in rows]
        batch = joined(batches)
        entry, pace = self._entry[row.channel], self._pace[row.channel]
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, self._slice_rows(pace))
            start += self._slice(pace, piece.num_rows, _call(entry, piece))
            self._chain.asked((ALL_INPUT,), in_vain=False)
            if start < batch.num_rows:
                self._in_hand = partial(_unprocessed, rows, batches, start)
                # The clock does not wait for the last row, which may be a minute away.
                yield from self._fire_timers()
                yield from self._send_ready()
                yield from self._cut_if_due()
        self._in_hand = list
        for each in rows:
            self._watermark.advance(each.channel, each.mark)
        yield from self._tell_time()

    def _taken_together(self, row: Row) -> list[Row]:
        """Small rows that wait in line are one batch: what a batch costs whatever its size would be paid for each."""
        if row.size >= SMALL_ROWS_BYTES:
            return [row]
        return [row, *self.intake.take_along(self._alike[row.channel], SMALL_ROWS_BYTES - row.size)]

    def close(self) -> None:
        super().close()
        self.intake.discard()


def _unprocessed(rows: Sequence[Row], batches: Sequence[pa.RecordBatch], done: int) -> list[Row]:
    """What is left of rows that are processed as one, when ``done`` of their records are."""
    left: list[Row] = []
    for row, batch in zip(rows, batches, strict=True):
        if done <= 0:
            left.append(row)
        elif done < batch.num_rows:
            left.append(replace(row, payload=batch.slice(done).serialize()))
        done -= batch.num_rows
    return left


def _call(entry: Callable[[pa.RecordBatch], None], piece: pa.RecordBatch) -> Callable[[], None]:
    return lambda: entry(piece)
