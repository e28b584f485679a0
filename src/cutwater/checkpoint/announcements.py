"""Who hears that a checkpoint completed, and what waits until its output is visible: the job's end, a stop (rules 42, 43)."""

from collections.abc import Callable, Iterable

from cutwater.checkpoint import commands as do
from cutwater.checkpoint.events import SavepointRequested
from cutwater.checkpoint.notification import Announce, CompletionNotices, Confirm, Step
from cutwater.checkpoint.statistics import CheckpointInfo
from cutwater.checkpoint.stop import Stop
from cutwater.flow.ids import CheckpointId, SubtaskId


class Announcements:
    """Of one attempt. After ``attempt_ended`` nobody hears anything any more."""

    def __init__(self, committing: Iterable[SubtaskId], command: Callable[[do.Command], None]) -> None:
        self._notices = CompletionNotices(committing)
        self._do = command
        self._final: CheckpointId | None = None
        self._ended = False
        self.stop: Stop | None = None
        """The stop-with-savepoint that is under way."""
        self.stopped_at: CheckpointInfo | None = None
        """The stop-with-savepoint whose output may be committed, while no later checkpoint covers it. If the attempt fails
        now, a restart must restore this savepoint: from an older checkpoint the same rows would be committed twice."""

    def stop_with(self, request: SavepointRequested) -> None:
        self.stop = Stop(request)

    def give_up_stop(self) -> None:
        self.stop = None

    @property
    def holds_triggers(self) -> bool:
        return self.stop is not None and self.stop.holds_triggers

    @property
    def final_completed(self) -> bool:
        return self._final is not None

    @property
    def nothing_is_left(self) -> bool:
        """All output is visible, now that all input ended: that of the final checkpoint, or of the savepoint in its place."""
        if self.stop is not None and self.stop.is_committing:
            return False
        stopped = self.stop is not None and self.stop.replaces_final_checkpoint
        return stopped or (self._final is not None and self._notices.is_confirmed(self._final))

    def checkpoint_completed(self, checkpoint: CheckpointId, *, final: bool) -> None:
        if self.stopped_at is not None and checkpoint > (self.stopped_at.id or 0):
            self.stopped_at = None
        if final:
            self._final = checkpoint
        self._announce(checkpoint)

    def stopping_savepoint_completed(self, checkpoint: CheckpointId, info: CheckpointInfo) -> None:
        """Only a stop-with-savepoint commits output (rule 43)."""
        if self.stop is None:
            return
        self.stop.savepoint_completed(info)
        if self._ended:
            self._abandon_stop("the attempt ended before its output was committed")
            return
        self.stopped_at = info
        self._announce(checkpoint)

    def committed(self, subtask: SubtaskId, checkpoint: CheckpointId) -> None:
        self._take_steps(self._notices.committed(subtask, checkpoint))

    def attempt_ended(self, reason: str) -> None:
        self._ended = True
        self._abandon_stop(reason)

    def _announce(self, checkpoint: CheckpointId) -> None:
        if not self._ended:
            self._take_steps(self._notices.completed(checkpoint))

    def _take_steps(self, steps: Iterable[Step]) -> None:
        for step in steps:
            match step:
                case Announce(checkpoint):
                    self._do(do.NotifyCompleted(checkpoint))
                case Confirm(checkpoint):
                    self._do(do.ConfirmOutput(checkpoint))
                    for command in self.stop.output_confirmed(checkpoint) if self.stop is not None else ():
                        self._do(command)

    def _abandon_stop(self, reason: str) -> None:
        for command in self.stop.attempt_ended(reason) if self.stop is not None else ():
            self._do(command)
