"""A subtask that reads channels."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from cutwater.barrier.alignment import WaitingForFirstBarrier
from cutwater.barrier.tracking import BarrierTracking
from cutwater.control.messages import Decline, RequestPause, RequestResume, TriggerCheckpoint
from cutwater.errors import ControlError
from cutwater.flow.envelope import Row, RowKind, read_data
from cutwater.flow.ids import CheckpointId
from cutwater.flow.transport import Step
from cutwater.flow.watermarks import MIN_WATERMARK, CombinedWatermark
from cutwater.subtask.intake import CutMark, Intake, IntakeEvents
from cutwater.subtask.limits import KIB
from cutwater.subtask.setup import Guarantee, SubtaskSetup
from cutwater.subtask.subtask import Steps, Subtask

SMALL_ROWS_BYTES = 64 * KIB


class OperatorSubtask(Subtask):
    """Takes the inbox in order: data in slices, cut marks as cuts, END in its turn."""

    def __init__(self, setup: SubtaskSetup, *args: Any, **kwargs: Any) -> None:
        super().__init__(setup, *args, **kwargs)
        channels = [incoming.channel for incoming in setup.inputs]
        live = frozenset(channels)
        self._waiting_for_end = set(channels)
        self._watermark = CombinedWatermark(channels)
        self._told = (MIN_WATERMARK, False)
        """The watermark that the operators know of, and whether they know that no input delivers."""
        self._drain = True
        self._schema = {incoming.channel: setup.input_schemas[incoming.edge] for incoming in setup.inputs}
        self._entry = {incoming.channel: self._chain.entry(incoming.port) for incoming in setup.inputs}
        self._alike = {
            incoming.channel: frozenset(
                other.channel
                for other in setup.inputs
                if other.port == incoming.port and self._schema[other.channel] == self._schema[incoming.channel]
            )
            for incoming in setup.inputs
        }
        self.intake = Intake(
            channels,
            WaitingForFirstBarrier(live) if setup.guarantee is Guarantee.EXACTLY_ONCE else BarrierTracking(live),
            setup.limits,
            self.mailbox.changed,
            self._clock,
            IntakeEvents(
                pause=lambda channel: self._send(RequestPause(channel)),
                resume=lambda channel: self._send(RequestResume(channel)),
                abandon=lambda checkpoint, reason: self._send(Decline(checkpoint, reason)),
            ),
            setup.spill_folder,
        )

    def _abort(self, checkpoint: CheckpointId) -> None:
        self.intake.abort(checkpoint)

    def idle_seconds(self) -> float | None:
        return None

    def has_work(self) -> bool:
        if self.mailbox.pending or self.mailbox.finished:
            return True
        return not self._paused() and (self._stands_still or self.intake.has_items())

    @property
    def held_bytes(self) -> int:
        return self.intake.held_bytes

    @property
    def inbox_bytes(self) -> int:
        return self.intake.inbox_bytes

    def _on_trigger(self, trigger: TriggerCheckpoint) -> Iterator[Step]:
        """Only a subtask whose input ended is triggered directly; for others the barriers are the trigger."""
        if self._ended:
            yield from self._cut_now(trigger)

    def _work(self) -> Steps:
        item = self.intake.take()
        match item:
            case None:
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
        batch = self._read(rows)
        entry = self._entry[row.channel]
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, self._pace.rows)
            self._slice(piece.num_rows, _call(entry, piece))
            start += piece.num_rows
            if start < batch.num_rows:
                yield from self._send_ready()
        for each in rows:
            self._watermark.advance(each.channel, each.mark)
        yield from self._tell_time()

    def _taken_together(self, row: Row) -> list[Row]:
        """Small rows that wait in line are one batch: what a batch costs whatever its size would be paid for each."""
        if row.size >= SMALL_ROWS_BYTES:
            return [row]
        return [row, *self.intake.take_along(self._alike[row.channel], SMALL_ROWS_BYTES - row.size)]

    def _read(self, rows: list[Row]) -> pa.RecordBatch:
        batches = [read_data(row, self._schema[row.channel]) for row in rows]
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)  # type: ignore[attr-defined]

    def close(self) -> None:
        super().close()
        self.intake.discard()


def _call(entry: Callable[[pa.RecordBatch], None], piece: pa.RecordBatch) -> Callable[[], None]:
    return lambda: entry(piece)
