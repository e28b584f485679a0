"""Stop-with-savepoint: savepoint, commit its output, stop the sources; or say why not and go on (rules 6, 21, 43)."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from cutwater.checkpoint import commands as do
from cutwater.checkpoint.events import SavepointRequested
from cutwater.checkpoint.statistics import CheckpointInfo
from cutwater.flow.ids import CheckpointId


class StopStage(Enum):
    SAVEPOINT_RUNNING = "savepoint running"
    COMMITTING = "committing"
    SOURCES_STOPPED = "sources stopped"


@dataclass(slots=True)
class Stop:
    """One that is under way. ``savepoint`` is set from ``COMMITTING`` on."""

    request: SavepointRequested
    stage: StopStage = StopStage.SAVEPOINT_RUNNING
    savepoint: CheckpointInfo | None = None

    @property
    def holds_triggers(self) -> bool:
        """Sources stand still behind the barrier. Once they stopped, drained windows may take long and need checkpoints;
        without drain nothing is left to save."""
        return not (self.stage is StopStage.SOURCES_STOPPED and self.request.drain)

    @property
    def is_committing(self) -> bool:
        return self.stage is StopStage.COMMITTING

    @property
    def replaces_final_checkpoint(self) -> bool:
        """Without drain nothing was emitted behind the savepoint, and its output is committed. A final checkpoint would
        record every source as finished, and the job could not be resumed from it."""
        return self.stage is StopStage.SOURCES_STOPPED and not self.request.drain

    def savepoint_completed(self, info: CheckpointInfo) -> None:
        self.savepoint = info
        self.stage = StopStage.COMMITTING

    def output_confirmed(self, checkpoint: CheckpointId) -> Iterator[do.Command]:
        """The caller is answered only now: a savepoint whose output is not visible has not stopped the job."""
        if self.is_committing and self.savepoint is not None and (self.savepoint.id or 0) <= checkpoint:
            self.stage = StopStage.SOURCES_STOPPED
            yield do.StopSources(self.request.drain)
            yield do.CompleteRequest(self.request.request, self.savepoint)

    def attempt_ended(self, reason: str) -> Iterator[do.Command]:
        if self.is_committing and self.savepoint is not None:
            where = f"the savepoint itself is complete at {self.savepoint.path}"
            yield do.FailRequest(self.request.request, f"The job was not stopped: {reason}; {where}")
