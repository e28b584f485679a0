"""What arrives, sorted in the order of arrival: into the inbox, or into the held queue of its channel.

Barriers are handled here, when they arrive, and leave a cut mark in the inbox: whatever stands before the mark belongs to
the checkpoint. The loop only ever takes from the front, so arrival order is processing order and END counts in its turn.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cutwater.barrier.alignment import Alignment
from cutwater.barrier.effects import AbandonAlignment, CutHere, Effect, HoldChannel, ReleaseChannels
from cutwater.barrier.tracking import BarrierTracking
from cutwater.errors import ControlError
from cutwater.flow.clock import Clock
from cutwater.flow.envelope import Row, RowKind, is_of_savepoint, read_triggered_at
from cutwater.flow.ids import ChannelId, CheckpointId
from cutwater.subtask.held import HeldQueue
from cutwater.subtask.limits import FlowLimits


@dataclass(frozen=True, slots=True)
class CutMark:
    """In the inbox: cut when everything before this was processed."""

    checkpoint: CheckpointId
    triggered_at: float
    first_barrier_at: float
    """Wall time; start delay = first_barrier_at - triggered_at."""
    alignment_seconds: float
    savepoint: bool = False


InboxItem = Row | CutMark


@dataclass(frozen=True, slots=True)
class IntakeEvents:
    """What others must hear of; called with the lock held, so they only note it down."""

    pause: Callable[[ChannelId], None]
    resume: Callable[[ChannelId], None]
    abandon: Callable[[CheckpointId, str], None]


class Intake:
    """Thread-safe: the reader offers, the loop takes, the control thread aborts. ``changed`` is notified on every change."""

    def __init__(
        self,
        channels: Sequence[ChannelId],
        barriers: Alignment | BarrierTracking,
        limits: FlowLimits,
        changed: threading.Condition,
        clock: Clock,
        events: IntakeEvents,
        spill_folder: str | None = None,
    ) -> None:
        self._barriers = barriers
        self._limits = limits
        self._changed = changed
        self._clock = clock
        self._events = events
        self._spill_folder = spill_folder
        self._inbox: deque[InboxItem] = deque()
        self._held: dict[ChannelId, HeldQueue] = {}
        self._paused: set[ChannelId] = set()
        self._expected: dict[ChannelId, int] = dict.fromkeys(channels, 0)
        self._first_barrier: dict[CheckpointId, tuple[float, bool, float, float]] = {}
        self.inbox_bytes = 0

    @property
    def held_bytes(self) -> int:
        with self._changed:
            return sum(queue.bytes for queue in self._held.values())

    def offer(self, row: Row) -> bool:
        with self._changed:
            queue = self._held.get(row.channel)
            full = self.inbox_bytes >= self._limits.inbox_bytes
            if queue is None and full and row.kind is RowKind.DATA:
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
            self._first_barrier.pop(checkpoint, None)
            self._transition(*self._barriers.checkpoint_aborted(checkpoint))
            self._changed.notify_all()

    def take(self) -> InboxItem | None:
        with self._changed:
            if not self._inbox:
                return None
            item = self._inbox.popleft()
            if isinstance(item, Row):
                was_full = self.inbox_bytes >= self._limits.inbox_bytes
                self.inbox_bytes -= item.size
                if was_full and self.inbox_bytes < self._limits.inbox_bytes:
                    self._changed.notify_all()
            return item

    def take_along(self, channels: frozenset[ChannelId], most_bytes: int) -> list[Row]:
        """The data rows of ``channels`` that stand at the front, up to about ``most_bytes``."""
        taken: list[Row] = []
        size = 0
        with self._changed:
            while self._inbox and size < most_bytes:
                item = self._inbox[0]
                if not isinstance(item, Row) or item.kind is not RowKind.DATA or item.channel not in channels:
                    break
                taken.append(item)
                size += item.size
                self.take()
        return taken

    def has_items(self) -> bool:
        return bool(self._inbox)

    def discard(self) -> None:
        """The attempt is over: free memory and spill files."""
        with self._changed:
            self._inbox.clear()
            for queue in self._held.values():
                queue.discard()

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
                checkpoint = CheckpointId(row.mark)
                if checkpoint not in self._first_barrier:
                    self._first_barrier[checkpoint] = (
                        read_triggered_at(row),
                        is_of_savepoint(row),
                        self._clock.wall(),
                        self._clock.monotonic(),
                    )
                self._transition(*self._barriers.barrier_arrived(row.channel, checkpoint))
            case RowKind.END:
                self._inbox.append(row)
                self._transition(*self._barriers.channel_ended(row.channel))
            case _:
                self._inbox.append(row)
                self.inbox_bytes += row.size

    def _hold(self, row: Row, queue: HeldQueue) -> None:
        queue.append(row)
        if queue.bytes > self._limits.hold_bytes and row.channel not in self._paused:
            self._paused.add(row.channel)
            self._events.pause(row.channel)

    def _transition(self, state: Alignment | BarrierTracking, effects: tuple[Effect, ...]) -> None:
        self._barriers = state
        for effect in effects:
            match effect:
                case HoldChannel(channel):
                    self._held[channel] = HeldQueue(self._limits.hold_memory_bytes, self._spill_folder)
                case CutHere(checkpoint):
                    self._mark_cut(checkpoint)
                case ReleaseChannels(channels):
                    self._release(channels)
                case AbandonAlignment(checkpoint, reason):
                    self._first_barrier.pop(checkpoint, None)
                    self._events.abandon(checkpoint, reason)

    def _mark_cut(self, checkpoint: CheckpointId) -> None:
        triggered_at, savepoint, wall, monotonic = self._first_barrier.pop(checkpoint)
        self._inbox.append(CutMark(checkpoint, triggered_at, wall, self._clock.monotonic() - monotonic, savepoint))
        for older in [n for n in self._first_barrier if n < checkpoint]:
            del self._first_barrier[older]

    def _release(self, channels: frozenset[ChannelId]) -> None:
        waiting = [(channel, self._held.pop(channel)) for channel in sorted(channels) if channel in self._held]
        for channel, queue in waiting:
            if channel in self._paused:
                self._paused.discard(channel)
                self._events.resume(channel)
            for row in queue.drain():
                # A barrier among the released rows may hold the channel again, for the next checkpoint.
                held_again = self._held.get(channel)
                if held_again is not None:
                    self._hold(row, held_again)
                else:
                    self._take_in(row)
