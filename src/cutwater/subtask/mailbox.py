"""What the driver told a subtask, until its loop looks. The control thread puts, the loop takes."""

import threading
from collections import deque
from dataclasses import replace
from typing import Any

from cutwater.control.messages import AssignSplits, StopSources, TriggerCheckpoint
from cutwater.flow.ids import ChannelId, CheckpointId


class Mailbox:
    """One condition guards it and the intake, so that the loop can wait for either."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.started = False
        self.finished = False
        self.paused: set[ChannelId] = set()
        self.stored_reservation = 0
        self._triggers: deque[TriggerCheckpoint] = deque()
        self._splits: deque[AssignSplits] = deque()
        self._completed: deque[CheckpointId] = deque()
        self._fates: deque[tuple[CheckpointId, bool]] = deque()
        self._stop: StopSources | None = None
        self._failure: BaseException | None = None
        self._settled = CheckpointId(0)
        self._aborted: set[CheckpointId] = set()

    def put_trigger(self, trigger: TriggerCheckpoint) -> None:
        with self.changed:
            done = trigger.checkpoint <= self._settled or trigger.checkpoint in self._aborted
            if not done and trigger.checkpoint not in {t.checkpoint for t in self._triggers}:
                self._triggers.append(trigger)
                self.changed.notify_all()

    def cut_now(self, checkpoint: CheckpointId) -> None:
        """The alignment timeout has passed: a trigger for it that was not looked at yet becomes an unaligned one."""
        with self.changed:
            self._triggers = deque(
                replace(trigger, unaligned=True) if trigger.checkpoint == checkpoint else trigger
                for trigger in self._triggers
            )

    def put_splits(self, splits: AssignSplits) -> None:
        with self.changed:
            self._splits.append(splits)
            self.changed.notify_all()

    def put_stop(self, stop: StopSources) -> None:
        with self.changed:
            self._stop = stop
            self.changed.notify_all()

    def put_completed(self, checkpoint: CheckpointId) -> None:
        with self.changed:
            self._completed.append(checkpoint)
            self.changed.notify_all()

    def take_completed(self) -> list[CheckpointId]:
        with self.changed:
            completed = list(self._completed)
            self._completed.clear()
            return completed

    def put_fate(self, checkpoint: CheckpointId, *, completed: bool) -> None:
        """Of a checkpoint that state was frozen for. The loop looks when it has something to do anyway."""
        with self.changed:
            self._fates.append((checkpoint, completed))

    def take_fates(self) -> list[tuple[CheckpointId, bool]]:
        """Which checkpoints completed (True) or were aborted, in the order in which that was heard."""
        if not self._fates:
            return []
        with self.changed:
            fates = list(self._fates)
            self._fates.clear()
            return fates

    def drop_trigger(self, checkpoint: CheckpointId) -> None:
        """Aborted: a trigger for it that was not looked at yet, or comes late, is a no-op (rule 9).

        Only for this id: an older one may still be on its way, to a subtask that ended meanwhile.
        """
        with self.changed:
            if checkpoint > self._settled:
                self._aborted.add(checkpoint)
            self._triggers = deque(t for t in self._triggers if t.checkpoint != checkpoint)

    def fail(self, error: BaseException) -> None:
        """Another thread of this subtask failed: the loop raises it."""
        with self.changed:
            self._failure = self._failure or error
            self.changed.notify_all()

    def set_flag(self, *, started: bool = False, finished: bool = False) -> None:
        with self.changed:
            self.started |= started
            self.finished |= finished
            self.changed.notify_all()

    def set_paused(self, channel: ChannelId, *, paused: bool) -> None:
        with self.changed:
            (self.paused.add if paused else self.paused.discard)(channel)
            self.changed.notify_all()

    def set_stored_reservation(self, number: int) -> None:
        with self.changed:
            self.stored_reservation = max(self.stored_reservation, number)
            self.changed.notify_all()

    def take_trigger(self) -> TriggerCheckpoint | None:
        with self.changed:
            return self._triggers.popleft() if self._triggers else None

    def take_splits(self) -> AssignSplits | None:
        with self.changed:
            return self._splits.popleft() if self._splits else None

    def take_stop(self) -> StopSources | None:
        with self.changed:
            stop, self._stop = self._stop, None
            return stop

    def cut(self, checkpoint: CheckpointId) -> None:
        with self.changed:
            self._settled = max(self._settled, checkpoint)
            self._aborted = {n for n in self._aborted if n > self._settled}
            self._triggers = deque(t for t in self._triggers if t.checkpoint > self._settled)

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def wait(self, seconds: float | None, unless: Any) -> None:
        """Rest until something changes; ``unless()`` is asked under the lock, so that no change is missed."""
        with self.changed:
            if not unless():
                self.changed.wait(seconds)

    @property
    def pending(self) -> bool:
        """What the loop looks at in any case."""
        return bool(self._triggers or self._failure)

    @property
    def has_errands(self) -> bool:
        """What a source looks at when it goes on reading."""
        return bool(self._splits or self._stop)

    def is_aborted(self, checkpoint: CheckpointId) -> bool:
        return checkpoint in self._aborted

    @property
    def has_completed(self) -> bool:
        """Whether checkpoints completed that the loop did not take notice of yet."""
        return bool(self._completed)
