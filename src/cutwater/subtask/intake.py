"""What arrives, sorted in the order of arrival: into the inbox, or into the held queue of its channel.

Barriers are handled here, when they arrive, and leave a cut mark in the inbox: whatever stands before the mark belongs to
the checkpoint. The loop only ever takes from the front, so arrival order is processing order and END counts in its turn. An
unaligned cut does not queue: it is the next that the loop takes, and rows that it overtakes are recorded (rules 14, 15).
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from cutwater.barrier.effects import (
    AbandonAlignment,
    CancelCut,
    CutAtOnce,
    CutHere,
    DropRecording,
    Effect,
    FinishRecording,
    HoldChannel,
    ReleaseChannels,
)
from cutwater.barrier.tracking import BarrierTracking
from cutwater.barrier.unaligned import Overtaking
from cutwater.errors import ControlError, StorageError
from cutwater.flow.clock import Clock
from cutwater.flow.envelope import Row, RowKind, read_barrier
from cutwater.flow.ids import ChannelId, CheckpointId
from cutwater.subtask.cut_mark import CutMark, HeardCheckpoints
from cutwater.subtask.held import HeldQueue
from cutwater.subtask.inbox import Inbox, InboxItem
from cutwater.subtask.limits import FlowLimits
from cutwater.subtask.recording import Recording
from cutwater.subtask.spill import Spill
from cutwater.subtask.stopped_senders import StoppedSenders, Why


@dataclass(frozen=True, slots=True)
class IntakeEvents:
    """What others must hear of; called with the lock held, so they only note it down."""

    pause: Callable[[ChannelId], None]
    resume: Callable[[ChannelId], None]
    abandon: Callable[[CheckpointId, str], None]
    recorded: Callable[[Recording], None]
    """All that was in flight at the cut is there."""
    dropped: Callable[[CheckpointId], None]
    """The checkpoint was given up behind its cut."""


class Intake:
    """Thread-safe: the reader offers, the loop takes, the control thread aborts. ``changed`` is notified on every change."""

    def __init__(
        self,
        channels: Sequence[ChannelId],
        barriers: Overtaking | BarrierTracking,
        limits: FlowLimits,
        changed: threading.Condition,
        clock: Clock,
        events: IntakeEvents,
        spill_folder: str | None = None,
    ) -> None:
        self._barriers = barriers
        self._limits = limits
        self._changed = changed
        self._events = events
        self._spill_folder = spill_folder
        self._inbox = Inbox(limits, clock)
        self._held: dict[ChannelId, HeldQueue] = {}
        self._stopped = StoppedSenders(events.pause, events.resume)
        self._expected: dict[ChannelId, int] = dict.fromkeys(channels, 0)
        self._passed: dict[ChannelId, CheckpointId] = dict.fromkeys(channels, CheckpointId(0))
        """The last barrier of each channel."""
        self._heard = HeardCheckpoints(clock)
        self._due: CutMark | None = None
        self._recording: Recording | None = None

    def replay(self, rows: Iterable[Row]) -> None:
        """Before anything arrives: rows that the restored checkpoint had overtaken. They stand first (rule 19)."""
        with self._changed:
            if any(self._expected.values()):
                raise ControlError(
                    "Rows arrived before those that the restored checkpoint holds: they would overtake them."
                )
            spill = self._new_spill()
            for row in rows:
                # A disk that takes no more leaves them in memory: without them nothing could go on.
                with suppress(StorageError):
                    spill.keep(row)
                self._inbox.append(row)

    def begin(self) -> None:
        """Everybody runs. Called by the control thread. While what was replayed is processed, the senders would fill the pipes
        anew, and each restore would add to what is in flight."""
        with self._changed:
            self._stem(self._passed)

    @property
    def held_bytes(self) -> int:
        with self._changed:
            return sum(queue.bytes for queue in self._held.values())

    @property
    def inbox_bytes(self) -> int:
        return self._inbox.bytes

    def offer(self, row: Row) -> bool:
        with self._changed:
            queue = self._held.get(row.channel)
            if queue is None and self._inbox.is_full and row.kind is RowKind.DATA and not self._barriers.gate_is_open:
                return False
            self._check_sequence(row)
            if queue is not None:
                self._hold(row, queue)
            else:
                self._take_in(row)
            self._changed.notify_all()
            return True

    def abort(self, checkpoint: CheckpointId) -> None:
        """The coordinator gave the checkpoint up: release at once what it holds (rule 9)."""
        with self._changed:
            self._heard.forget(checkpoint)
            self._transition(*self._barriers.checkpoint_aborted(checkpoint))
            self._changed.notify_all()

    def request_cut(self, checkpoint: CheckpointId, triggered_at: float) -> None:
        """The driver wants an unaligned cut. Called by the control thread: the gate opens whatever the loop is doing."""
        with self._changed:
            self._heard.hear(checkpoint, triggered_at, savepoint=False)
            self._transition(*self._barriers.cut_requested(checkpoint))
            self._changed.notify_all()

    @property
    def due_cut(self) -> CutMark | None:
        """Looked at before anything more is processed (rule 15)."""
        return self._due

    @property
    def recording(self) -> CheckpointId | None:
        """The checkpoint whose barriers are still awaited behind its cut."""
        recording = self._recording
        return None if recording is None else recording.checkpoint

    def begin_cut(self, checkpoint: CheckpointId) -> bool:
        """The loop is about to cut because the driver said so, as its input is over: from here on a later call of the driver's
        comes too late. False: that call was there first, and the cut is due."""
        with self._changed:
            if self._due is not None:
                return False
            self._transition(*self._barriers.cut_taken(checkpoint))
            return True

    def cut_taken(self, checkpoint: CheckpointId) -> None:
        """The loop has cut where a mark stood or where ``begin_cut`` allowed it, and nothing was overtaken."""
        with self._changed:
            self._heard.cut(checkpoint)

    def record(self, mark: CutMark, rest: Sequence[Row]) -> None:
        """The loop has frozen its state at the unaligned ``mark`` and has not gone on: ``rest`` is what it had taken and did
        not process. Ends with ``recorded`` or ``dropped``, now or later."""
        checkpoint = mark.checkpoint
        with self._changed:
            if self._due is not mark:
                self._events.dropped(checkpoint)
                return
            self._due = None
            heard = self._heard.cut(checkpoint)
            assert heard is not None, "whoever asked for the cut was heard"
            # An older cut that waits its turn would come behind a newer one.
            self._inbox.drop_marks()
            recording = Recording(checkpoint, heard, self._limits.in_flight_bytes, self._new_spill())
            self._recording = recording
            for row in (*rest, *self._inbox.rows()):
                recording.add(row)
            if not self._gave_up():
                self._transition(*self._barriers.cut_taken(checkpoint))

    def _new_spill(self) -> Spill:
        return Spill(self._limits.in_flight_memory_bytes, self._spill_folder)

    def take(self) -> InboxItem | None:
        with self._changed:
            if self._due is not None:
                return self._due
            if not self._inbox:
                return None
            was_full = self._inbox.is_full
            item = self._inbox.pop()
            if isinstance(item, Row):
                self._heard.taken_bytes += item.size
                if was_full and not self._inbox.is_full:
                    self._stopped.let_all_go(Why.FLOODED)
                    self._changed.notify_all()
            else:
                # From here on the loop cuts there: the driver's call can overtake the mark no more.
                self._transition(*self._barriers.cut_taken(item.checkpoint))
            return item

    def take_along(self, channels: frozenset[ChannelId], most_bytes: int) -> list[Row]:
        """The data rows of ``channels`` that stand at the front, up to about ``most_bytes``."""
        taken: list[Row] = []
        size = 0
        with self._changed:
            while self._inbox and size < most_bytes and self._due is None:
                item = self._inbox.first
                if not isinstance(item, Row) or item.kind is not RowKind.DATA or item.channel not in channels:
                    break
                taken.append(item)
                size += item.size
                self.take()
        return taken

    def has_items(self) -> bool:
        return bool(self._inbox) or self._due is not None

    def discard(self) -> None:
        """The attempt is over: free memory and spill files."""
        with self._changed:
            self._inbox.clear()
            self._recording = None
            self._held.clear()

    def _check_sequence(self, row: Row) -> None:
        expected = self._expected.get(row.channel)
        if expected is None:
            raise ControlError(f"A row arrived on channel {row.channel}, which does not lead here: the plan is wrong.")
        if row.seq != expected:
            raise ControlError(
                f"Channel {row.channel} delivered row {row.seq} where row {expected} was due: "
                f"rows were {'lost' if row.seq > expected else 'repeated'} on the exchange."
            )
        self._expected[row.channel] = expected + 1

    def _take_in(self, row: Row) -> None:
        match row.kind:
            case RowKind.BARRIER:
                checkpoint, note = CheckpointId(row.mark), read_barrier(row)
                self._passed[row.channel] = checkpoint
                self._heard.hear(checkpoint, note.triggered_at, savepoint=note.savepoint)
                self._transition(*self._barriers.barrier_arrived(row.channel, checkpoint, unaligned=note.unaligned))
            case RowKind.END:
                self._inbox.append(row)
                self._transition(*self._barriers.channel_ended(row.channel))
            case _:
                row.behind = self._passed[row.channel]
                self._inbox.append(row)
                self._let_in(row)

    def _let_in(self, row: Row) -> None:
        """The gate may be open."""
        if self._recording is not None:
            self._recording.add(row)
            self._gave_up()
        if self._barriers.gate_is_open and row.behind == self._barriers.aligning:
            self._stem((row.channel,))

    def _stem(self, channels: Iterable[ChannelId]) -> None:
        """Senders that are not waited for can wait themselves until the inbox is as it should be."""
        if not self._inbox.is_full:
            return
        for channel in channels:
            self._stopped.stop(channel, Why.FLOODED)

    def _gave_up(self) -> bool:
        """Whether the checkpoint cannot have what would have to be recorded: then it is given up here."""
        recording = self._recording
        if recording is None or recording.refusal is None:
            return False
        self._recording = None
        self._events.dropped(recording.checkpoint)
        self._events.abandon(recording.checkpoint, recording.refusal)
        self._transition(*self._barriers.checkpoint_aborted(recording.checkpoint))
        return True

    def _hold(self, row: Row, queue: HeldQueue) -> None:
        try:
            queue.append(row)
        except StorageError as error:
            self._give_up_holding(str(error))
            return
        if queue.bytes > self._limits.hold_bytes:
            self._stopped.stop(row.channel, Why.HELD)

    def _give_up_holding(self, reason: str) -> None:
        """As with recorded rows, it is the checkpoint that has no place for them. Without it nothing is held: rows go to the
        inbox, and while that is full no more are read."""
        checkpoint = self._barriers.aligning
        assert checkpoint is not None, "channels are held for a checkpoint"
        state, effects = self._barriers.checkpoint_aborted(checkpoint)
        self._transition(state, (AbandonAlignment(checkpoint, reason), *effects))

    def _transition(self, state: Overtaking | BarrierTracking, effects: tuple[Effect, ...]) -> None:
        was_open = self._barriers.gate_is_open
        self._barriers = state
        for effect in effects:
            match effect:
                case HoldChannel(channel):
                    self._held[channel] = HeldQueue(self._limits.hold_memory_bytes, self._spill_folder)
                case CutHere(checkpoint):
                    # Stays known until it is cut: past the alignment timeout the mark is overtaken.
                    self._inbox.append(self._heard.mark(checkpoint, unaligned=False))
                case ReleaseChannels(channels):
                    self._release(channels)
                case AbandonAlignment(checkpoint, reason):
                    self._heard.forget(checkpoint)
                    self._events.abandon(checkpoint, reason)
                case CutAtOnce(checkpoint):
                    self._due = self._heard.mark(checkpoint, unaligned=True)
                case CancelCut():
                    self._due = None
                case FinishRecording():
                    self._finish_recording()
                case DropRecording(checkpoint):
                    if self._recording is not None:
                        self._recording = None
                        self._events.dropped(checkpoint)
        if was_open and not self._barriers.gate_is_open:
            # The pipes are in the inbox now, and would fill again before the next checkpoint does the same.
            self._stem(self._passed)

    def _finish_recording(self) -> None:
        recording, self._recording = self._recording, None
        assert recording is not None
        recording.alignment = self._heard.alignment_since(recording.heard)
        self._events.recorded(recording)

    def _release(self, channels: frozenset[ChannelId]) -> None:
        waiting = [(channel, self._held.pop(channel)) for channel in sorted(channels) if channel in self._held]
        for channel, queue in waiting:
            self._stopped.let_go(channel, Why.HELD)
            for row in queue.drain():
                # A barrier among the released rows may hold the channel again, for the next checkpoint.
                held_again = self._held.get(channel)
                if held_again is not None:
                    self._hold(row, held_again)
                else:
                    self._take_in(row)
