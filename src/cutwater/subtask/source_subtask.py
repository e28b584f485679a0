"""A subtask that reads a source. Cuts between batches only, so a position is all it has to remember (rule 16)."""

from collections.abc import Iterator, Set
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

from cutwater.connectors.source import Source, SourceContext
from cutwater.control.messages import ReservePositions, TriggerCheckpoint
from cutwater.flow.ids import CheckpointId
from cutwater.flow.transport import Emit, Step, Wait
from cutwater.operators.operator import OperatorSnapshot
from cutwater.subtask.chain import failures_of
from cutwater.subtask.setup import Guarantee, SubtaskSetup
from cutwater.subtask.source_input import SourceBatch, SourceInput
from cutwater.subtask.subtask import Steps, Subtask

PATIENCE = timedelta(milliseconds=10)
"""How long a reader may wait for records: a trigger waits at most this long."""
IDLE_SECONDS = 0.005
RESERVED_BATCHES = 16


class SourceSubtask(Subtask):
    def __init__(self, setup: SubtaskSetup, *args: Any, **kwargs: Any) -> None:
        super().__init__(setup, *args, **kwargs)
        body = setup.vertex.head.body
        assert isinstance(body, Source)
        self._source = body
        self._uid = setup.vertex.head.uid
        self._outlet = self._chain.source_outlet()
        self._pace = self._new_pace()
        self._reserved: list[SourceBatch] = []
        self._reservation = 0
        self._stopped_behind: CheckpointId | None = None
        self._begun = False
        self._told_turnover = -1

    def _open_input(self) -> None:
        setup = self._setup
        ctx = SourceContext(setup.job, self._uid, setup.subtask.index, setup.vertex.parallelism, setup.attempt)
        with failures_of(self._uid):
            self._input = SourceInput(self._source, ctx, self._state.splits, checkpointed=setup.checkpointed)

    def _abort(self, checkpoint: CheckpointId) -> None:
        """A stop-with-savepoint that failed leaves the job running (rule 6)."""
        self._go_on_behind(checkpoint)

    def _go_on_behind(self, checkpoint: CheckpointId) -> None:
        with self.mailbox.changed:
            if self._stopped_behind == checkpoint:
                self._stopped_behind = None
                self.mailbox.changed.notify_all()

    def idle_seconds(self) -> float | None:
        if self._ended or not self.mailbox.started or self._reserved:
            return None
        return IDLE_SECONDS

    def has_work(self) -> bool:
        """A source that rests for lack of records is not asked here: it looks again after ``idle_seconds``."""
        if self.mailbox.pending or self.mailbox.finished:
            return True
        if self._paused():
            return False
        reads = self.mailbox.started and not self._ended
        may_go_on = reads and (not self._begun or self.mailbox.has_errands)
        is_stored = bool(self._reserved) and self.mailbox.stored_reservation >= self._reservation
        must_tell = self._ended and self._begun and self.mailbox.has_completed and self._input.has_open_readers
        return may_go_on or is_stored or must_tell or self._stands_still

    def _on_trigger(self, trigger: TriggerCheckpoint) -> Iterator[Step]:
        if trigger.stop or self._setup.stop_the_world:
            with self.mailbox.changed:
                # It may have been given up since it was taken: then nobody will say to go on.
                if not self.mailbox.is_aborted(trigger.checkpoint):
                    self._stopped_behind = trigger.checkpoint
        yield from self._cut_now(trigger)

    def _source_snapshot(self, checkpoint: CheckpointId) -> dict[str, OperatorSnapshot]:
        with failures_of(self._uid):
            positions = self._input.frozen_positions()
        self._input.remember(checkpoint)
        return {self._uid: OperatorSnapshot(inline=lambda: {"splits": positions()})}

    def _complete(self, checkpoint: CheckpointId) -> None:
        super()._complete(checkpoint)
        self.mailbox.put_completed(checkpoint)
        if self._setup.stop_the_world:
            self._go_on_behind(checkpoint)

    def _work(self) -> Steps:
        if not self.mailbox.started:
            return False
        self._begun = True
        # Also behind the end of input: what was read last is covered by the final checkpoint only.
        self._tell_completed()
        if self._ended:
            return False
        while (assigned := self.mailbox.take_splits()) is not None:
            self._input.add(assigned.splits)
        stop = self.mailbox.take_stop()
        if stop is not None:
            yield from self._end(drain=stop.drain)
            return True
        if self._stopped_behind is not None:
            return False
        if self._setup.guarantee is Guarantee.AT_MOST_ONCE:
            return (yield from self._work_reserved())
        return (yield from self._work_directly())

    def _tell_completed(self) -> None:
        for checkpoint in self.mailbox.take_completed():
            with failures_of(self._uid):
                self._input.checkpoint_completed(checkpoint)

    def _work_directly(self) -> Steps:
        asked = self._slice_rows(self._pace)
        batch = self._next(asked)
        if batch is None and self._input.exhausted:
            yield from self._end(drain=True)
            return True
        if batch is None:
            # The batch before may have been all there was, and just what was asked for. Who rests sends what is let go.
            self._chain.let_go()
            return False
        yield from self._pass_on(batch)
        if batch.main is None or batch.main.num_rows < asked:
            # The source gave all it had.
            yield from self._send_all()
        return True

    def _send_all(self) -> Iterator[Step]:
        """No more will come soon to be combined with, or to fill the payload."""
        self._chain.let_go()
        yield Emit(tuple(self._outputs.flush(self._clock.monotonic())), urgent=True)

    def _work_reserved(self) -> Steps:
        """At most once: rows are emitted only when a restart is sure to go on behind them."""
        if not self._reserved:
            rows = self._slice_rows(self._pace)
            while len(self._reserved) < RESERVED_BATCHES and (batch := self._next(rows)) is not None:
                self._reserved.append(batch)
            if not self._reserved:
                if self._input.exhausted:
                    yield from self._end(drain=True)
                else:
                    self._chain.let_go()
                return self._ended
            self._reservation += 1
            self._send(ReservePositions(self._reservation, {"uid": self._uid, "splits": self._input.positions()}))
        if self.mailbox.stored_reservation < self._reservation:
            yield Wait(None)
            return True
        batches, self._reserved = self._reserved, []
        for batch in batches:
            yield from self._pass_on(batch)
        self._tell_splits()
        if len(batches) < RESERVED_BATCHES:
            # The source gave all it had.
            yield from self._send_all()
        return True

    def _tell_splits(self, in_hand: Set[str] = frozenset()) -> None:
        """``in_hand``: of which records are reserved and not out yet; those of them that have ended are told later."""
        if self._input.turnover != self._told_turnover:
            open_splits = frozenset(self._input.open_splits())
            self._chain.reads_splits(open_splits | in_hand)
            if in_hand <= open_splits:
                self._told_turnover = self._input.turnover

    def _next(self, rows: int) -> SourceBatch | None:
        with failures_of(self._uid):
            batch = self._input.next(rows, PATIENCE)
        in_hand = {reserved.split for reserved in self._reserved}
        # New ones hold time back before a silent one lets it go on.
        self._tell_splits(in_hand)
        if self._input.in_vain:
            self._chain.asked([split for split in self._input.in_vain if split not in in_hand], in_vain=True)
        return batch

    def _pass_on(self, batch: SourceBatch) -> Iterator[Step]:
        rows = batch.main.num_rows if batch.main is not None else 0

        def emit() -> None:
            self._chain.reads(batch.split)
            if batch.main is not None:
                self._outlet.emit(batch.main)
            for tag, side in batch.side.items():
                self._outlet.emit_side(tag, side)
            self._chain.asked((batch.split,), in_vain=False)

        self._slice(self._pace, rows, emit)
        yield from self._send_ready()

    def close(self) -> None:
        with ExitStack() as stack:
            stack.callback(super().close)
            if hasattr(self, "_input"):
                stack.callback(self._close_input)
                if self.mailbox.finished:
                    # Finish may overtake the commit thread, which learns of the final checkpoint at the same time.
                    self._tell_completed()

    def _close_input(self) -> None:
        with failures_of(self._uid):
            self._input.close()
