"""One subtask: what it does with rows, messages and time. Never blocks, so it runs under a simulated scheduler too.

``open`` and ``steps`` belong to the loop; ``on_message`` to the control thread; ``intake.offer`` to the reader.
"""

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace

from cutwater.control.messages import Committed, InputEnded, Progress, Running, ToDriver, TriggerCheckpoint
from cutwater.flow.clock import Clock
from cutwater.flow.envelope import Row
from cutwater.flow.ids import CheckpointId
from cutwater.flow.transport import Emit, Step, Wait
from cutwater.flow.watermarks import MAX_WATERMARK
from cutwater.operators.operator import DriverPort, OperatorSnapshot
from cutwater.operators.turn import Turn
from cutwater.state.uncollected import uncollected
from cutwater.subtask.chain import Chain
from cutwater.subtask.cut_mark import CutMark
from cutwater.subtask.freezing import kept
from cutwater.subtask.gap import LoopGap
from cutwater.subtask.garbage import Garbage, PythonsOwn
from cutwater.subtask.hearing import HearsDriver
from cutwater.subtask.operator_contexts import OperatorContexts
from cutwater.subtask.outflow import Outflow
from cutwater.subtask.outputs import Outputs
from cutwater.subtask.pace import Pace
from cutwater.subtask.setup import Background, SubtaskSetup, SubtaskState, TableWriter
from cutwater.subtask.snapshotting import CutTimes, FrozenCut, Snapshotting

Steps = Generator[Step, None, bool]
"""Yields what the transport must do; returns whether any work was done."""

LONGEST_REST_SECONDS = 3600.0
"""A timer may be centuries away, and no thread can wait that long: the loop looks again in between."""
RECORDS_A_STEP = 1024
"""So much garbage may be left by a step of what is due: nobody counts its records."""
SLICES_A_TURN = 2
"""When rows suddenly take so many times as long as a slice should, as beside a snapshot, the rest of it comes later."""


class Subtask(HearsDriver):
    _reads_channels = False

    def __init__(
        self,
        setup: SubtaskSetup,
        state: SubtaskState,
        *,
        send: Callable[[ToDriver], None],
        background: Background,
        writer: TableWriter,
        clock: Clock,
        garbage: Garbage | None = None,
    ) -> None:
        super().__init__(background)
        self._setup = setup
        self._state = state
        self._send = send
        self._clock = clock
        self._garbage = garbage or PythonsOwn()
        self._outputs = Outputs(setup.routes, setup.max_parallelism, setup.limits, setup.subtask.index)
        self._chain = Chain(setup.vertex, self._outputs.sends())
        self._resumed = state.resumed if setup.backend.incremental else None
        self._base = None if self._resumed is None else self._resumed.checkpoint
        """The latest checkpoint of which the operators were told that it completed."""
        self._snapshotting = Snapshotting(
            setup.subtask, writer, clock, send, self.mailbox.fail, self._resumed, incremental=setup.backend.incremental
        )
        limits = setup.limits
        self._outflow = Outflow(limits.max_slice_bytes, limits.leaving_seconds, limits.max_slice_rows)
        self._turn = Turn(clock.monotonic, SLICES_A_TURN * limits.slice_seconds)
        self.gap = LoopGap()
        self._ended = False
        self._stands_still = False
        """Waits for a paused channel to be resumed."""
        self.records_in = 0
        self._counters: dict[str, dict[str, int]] = {uid: {} for uid in self._chain.uids}

    # --- the commit thread --------------------------------------------------------------------------------------------

    def _complete(self, checkpoint: CheckpointId) -> None:
        try:
            self._chain.complete(checkpoint)
        except Exception as error:
            self.mailbox.fail(error)
        else:
            if self._setup.vertex.has_sink:
                self._send(Committed(checkpoint))

    # --- the loop -----------------------------------------------------------------------------------------------------

    def open(self, driver: DriverPort) -> None:
        """Restore, open every operator, commit restored output; then report for duty."""
        self._chain.open(
            OperatorContexts(self._setup, self._state, self._resumed, self._clock, self._counters, driver, self._turn)
        )
        self._open_input()
        # What it was restored from may be large: databases that were fetched to the disk, or all that came with the message.
        self._state, self._resumed = replace(self._state, operators={}, resumed=None), None
        self._garbage.begin()
        self._send(Running())

    def _open_input(self) -> None:
        """For a source: prepare its splits."""

    def steps(self) -> Iterator[Step]:
        """Runs until the driver says Finish. Every iteration looks at the mailbox before it takes more work."""
        if self._state.finished:
            # It finished because its input ended, so whoever reads it must drain too (rule 20).
            yield from self._end(drain=True)
        else:
            yield from self._stepwise(self._chain.resuming())
        while not self.mailbox.finished:
            self.mailbox.raise_failure()
            self._hear_of_checkpoints()
            trigger = self.mailbox.take_trigger()
            if trigger is not None:
                yield from self._on_trigger(trigger)
                continue
            if self._paused() and not self._must_cut():
                self._stands_still = True
                yield Wait(None)
                self._stands_still = False
                continue
            worked = yield from self._work()
            worked = (yield from self._fire_timers()) or worked
            yield from self._send_ready() if worked else self._rest()
        self.mailbox.raise_failure()

    def close(self) -> None:
        try:
            self._chain.close()
        finally:
            self._garbage.end()

    def _hear_of_checkpoints(self) -> None:
        for checkpoint, completed in self.mailbox.take_fates():
            if completed:
                self._base = checkpoint if self._base is None else max(self._base, checkpoint)
            else:
                self._snapshotting.give_up(checkpoint)
            self._chain.checkpoint_ended(checkpoint, completed=completed)

    @abstractmethod
    def _work(self) -> Steps:
        """One slice of work, if there is any."""

    @abstractmethod
    def idle_seconds(self) -> float | None:
        """How long to rest when there was no work; None: until something changes."""

    @abstractmethod
    def has_work(self) -> bool:
        """Asked under the mailbox's lock before the loop rests: True if it must not."""

    @abstractmethod
    def _on_trigger(self, trigger: TriggerCheckpoint) -> Iterator[Step]: ...

    def _must_cut(self) -> bool:
        """Whether an unaligned cut has to come before anything else."""
        return False

    def _taken(self, mark: CutMark, rest: Sequence[Row]) -> None:
        """State is frozen, and nothing was processed since. ``rest``: taken from the inbox, and not processed before."""

    def _cut_between_steps(self) -> Iterator[Step]:
        """Of a long piece of work whose rest is frozen with the state."""
        yield from ()

    def _after_cut(self, mark: CutMark) -> Iterator[Step]:
        """The barrier is out."""
        yield from ()

    def _source_snapshot(self, checkpoint: CheckpointId) -> dict[str, OperatorSnapshot]:
        return {}

    def _paused(self) -> bool:
        return bool(self.mailbox.paused)

    def _fire_timers(self) -> Steps:
        due = self._chain.next_timer()
        now = int(self._clock.wall() * 1000)
        if due is None or due > now or self._ended:
            return False
        yield from self._stepwise(self._chain.on_processing_time(now))
        return True

    def _stepwise(self, steps: Iterator[None]) -> Iterator[Step]:
        """What is due all at once may be much: what is ready leaves between the steps, and a cut need not wait for the last."""
        while True:
            self.gap.enter(self._clock.monotonic())
            try:
                ended = next(steps, self) is self
                self._garbage.processed(RECORDS_A_STEP)
            finally:
                self.gap.leave(self._clock.monotonic())
            yield from self._send_ready()
            if ended:
                return
            if self._chain.may_be_cut:
                yield from self._cut_between_steps()

    def _send_ready(self) -> Iterator[Step]:
        full = self._outputs.full(began := self._clock.monotonic())
        if full:
            yield Emit(tuple(full), urgent=False)
            self._outflow.left(self._clock.monotonic() - began)
        # Also right behind full ones: a channel that gets little must not wait until the others rest.
        if self._outputs.overdue(now := self._clock.monotonic()):
            yield Emit(tuple(self._outputs.flush(now)), urgent=True)

    def _rest(self) -> Iterator[Step]:
        """Nothing to do: nobody waits for records that this subtask could send now."""
        yield Emit(tuple(self._outputs.flush(self._clock.monotonic())), urgent=True)
        waits = [self.idle_seconds()]
        if not self._ended and (timer := self._chain.next_timer()) is not None:
            waits.append(max(0.0, timer / 1000 - self._clock.wall()))
        if (time_due := self._outputs.time_due()) is not None:
            waits.append(max(0.0, time_due - self._clock.monotonic()))
        shortest = min((seconds for seconds in waits if seconds is not None), default=None)
        yield Wait(None if shortest is None else min(shortest, LONGEST_REST_SECONDS))

    def _cut_now(self, trigger: TriggerCheckpoint) -> Iterator[Step]:
        """Told by the driver, not by barriers."""
        seen_at = self._clock.wall()
        yield from self._cut(
            CutMark(
                trigger.checkpoint,
                trigger.triggered_at,
                seen_at,
                savepoint=trigger.savepoint,
                unaligned=trigger.unaligned,
            )
        )

    def _cut(self, mark: CutMark, rest: Sequence[Row] = ()) -> Iterator[Step]:
        """Freeze, hand over to the snapshot thread, send the barrier on; nothing is processed in between. Nothing of it for a
        checkpoint that was given up."""
        checkpoint, triggered_at = mark.checkpoint, mark.triggered_at
        if not self._ended and not mark.unaligned:
            self._chain.let_go()  # unaligned, that would wait behind whatever jams: it is frozen instead (rule 24)
        self._hear_of_checkpoints()
        if self.mailbox.is_aborted(checkpoint):
            return  # whoever waits for its barrier is told too (rule 9)
        with uncollected():
            began = self._clock.monotonic()
            frozen = {**self._source_snapshot(checkpoint), **self._chain.snapshot(checkpoint)}
            sync = self._clock.monotonic() - began
        times = CutTimes(
            start_delay=max(0.0, mark.first_barrier_at - triggered_at),
            alignment=mark.alignment,
            sync=sync,
            longest_gap=self.gap.take(),
        )
        self.mailbox.cut(checkpoint)
        backend = self._setup.backend
        cut = FrozenCut(
            checkpoint,
            self._base if backend.incremental else None,
            self._ended,
            kept(frozen, self._setup.guarantee, savepoint=mark.savepoint),
            times,
            self.records_in,
            self._chain.records_written,
            waits=not backend.asynchronous,
            rows_follow=mark.unaligned and self._reads_channels,
            unaligned=mark.unaligned,
        )
        if cut.waits:
            self._snapshotting.line_up(cut)()
        else:
            self._store_soon(cut)
        self._taken(mark, rest)
        if not self._ended:
            barrier = self._outputs.barrier(
                checkpoint, triggered_at, savepoint=mark.savepoint, unaligned=mark.unaligned
            )
            yield Emit(tuple(barrier), urgent=True)
        yield from self._after_cut(mark)

    def _store_soon(self, cut: FrozenCut, pause: float = 0.0) -> None:
        self._background.snapshot(self._snapshotting.line_up(cut), pause)

    def _end(self, *, drain: bool) -> Iterator[Step]:
        """All input was processed: pass END on, once; live on, acknowledge, and wait for Finish (rule 20)."""
        if not self._state.finished:
            if drain:
                yield from self._stepwise(self._chain.advancing(MAX_WATERMARK))
            yield from self._stepwise(self._chain.end_of_input(drain=drain))
        self._ended = True
        yield Emit(tuple(self._outputs.end(drain=drain)), urgent=True)
        self._send(self.progress())
        self._send(InputEnded())

    def progress(self) -> Progress:
        return Progress(
            records_in=self.records_in,
            records_out=self._outputs.records_out,
            longest_gap=self.gap.longest,
            held_bytes=self.held_bytes,
            inbox_bytes=self.inbox_bytes,
            records_written=self._chain.records_written,
            counters={
                f"{uid}.{name}": value for uid, own in self._counters.items() for name, value in own.copy().items()
            },
        )

    @property
    def held_bytes(self) -> int:
        return 0

    @property
    def inbox_bytes(self) -> int:
        return 0

    def _new_pace(self) -> Pace:
        """For one way into the chain: what a row costs depends on it."""
        limits = self._setup.limits
        return Pace(limits.slice_seconds, limits.max_slice_rows)

    def _slice_rows(self, pace: Pace) -> int:
        return min(pace.rows, self._outflow.rows, self._chain.rows_at_once)

    def _slice(self, pace: Pace, rows: int, process: Callable[[], None]) -> int:
        """One slice, measured: its length sets the next one's of this pace, and the longest is what a trigger may wait for. How
        many of its rows are processed."""
        clock = self._clock
        self.gap.enter(clock.monotonic())
        waited_before, made_before = clock.waited_for_core(), self._outputs.bytes_out
        process()
        rows -= self._turn.end()
        collecting = self._garbage.processed(rows)
        waited = clock.waited_for_core() - waited_before
        # Fewer rows are no help against a machine that is busy with others, or garbage: they would only cost more each.
        pace.observe(rows, self.gap.leave(clock.monotonic()) - waited - collecting)
        self._outflow.made(rows, self._outputs.bytes_out - made_before)
        self.records_in += rows
        return rows
