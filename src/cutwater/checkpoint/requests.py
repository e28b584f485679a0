"""What users asked for and still wait for: savepoints one by one, manual checkpoints together (rule 3)."""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from cutwater.checkpoint.events import RequestId, SavepointRequested
from cutwater.checkpoint.statistics import CheckpointInfo, CheckpointKind
from cutwater.checkpoint.trigger import Occasion


class WaitingRequests:
    """Requests whose checkpoint has not started. One checkpoint serves every manual request that waited when it started."""

    def __init__(self) -> None:
        self._savepoints: deque[SavepointRequested] = deque()
        self._manual: list[RequestId] = []

    @property
    def savepoint_waiting(self) -> bool:
        return bool(self._savepoints)

    @property
    def manual_waiting(self) -> bool:
        return bool(self._manual)

    def add_savepoint(self, request: SavepointRequested) -> None:
        self._savepoints.append(request)

    def add_manual(self, request: RequestId) -> None:
        self._manual.append(request)

    def take_for(self, occasion: Occasion) -> "Reservation":
        match occasion:
            case Occasion.SAVEPOINT:
                savepoint = self._savepoints.popleft()
                return Reservation(occasion, [savepoint.request], savepoint)
            case Occasion.MANUAL | Occasion.FINAL:
                requests, self._manual = self._manual, []
                return Reservation(occasion, requests)
            case Occasion.PERIODIC:
                return Reservation(occasion)

    def withdraw(self, request: RequestId) -> bool:
        before = len(self._savepoints) + len(self._manual)
        self._savepoints = deque(waiting for waiting in self._savepoints if waiting.request != request)
        self._manual = [waiting for waiting in self._manual if waiting != request]
        return len(self._savepoints) + len(self._manual) < before

    def take_all(self) -> list[RequestId]:
        everybody = [waiting.request for waiting in self._savepoints] + self._manual
        self._savepoints.clear()
        self._manual = []
        return everybody


@dataclass(slots=True)
class Reservation:
    """A checkpoint that has been decided on and waits for its id."""

    occasion: Occasion
    requests: list[RequestId] = field(default_factory=list)
    savepoint: SavepointRequested | None = None

    @property
    def kind(self) -> CheckpointKind:
        match self.occasion:
            case Occasion.SAVEPOINT:
                return CheckpointKind.SAVEPOINT
            case Occasion.FINAL:
                return CheckpointKind.FINAL
            case Occasion.MANUAL | Occasion.PERIODIC:
                return CheckpointKind.CHECKPOINT

    @property
    def is_abandoned(self) -> bool:
        """A savepoint nobody waits for any more; other checkpoints are useful in themselves."""
        return self.savepoint is not None and not self.requests


class StopStage(Enum):
    SAVEPOINT_RUNNING = "savepoint running"
    COMMITTING = "committing"
    SOURCES_STOPPED = "sources stopped"


@dataclass(slots=True)
class Stopping:
    """A stop-with-savepoint under way. ``completed`` is set from ``COMMITTING`` on."""

    request: SavepointRequested
    stage: StopStage = StopStage.SAVEPOINT_RUNNING
    completed: CheckpointInfo | None = None

    @property
    def holds_triggers(self) -> bool:
        """Drained windows may take long and their output needs checkpoints; without drain nothing is left to save."""
        return not (self.stage is StopStage.SOURCES_STOPPED and self.request.drain)

    @property
    def needs_no_final_checkpoint(self) -> bool:
        """Without drain nothing was emitted behind the savepoint, and its output is committed. A final checkpoint would
        record every source as finished, and the job could not be resumed from it."""
        return self.stage is StopStage.SOURCES_STOPPED and not self.request.drain
