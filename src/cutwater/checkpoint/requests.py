"""What users asked for and still wait for: savepoints one by one, manual checkpoints together (rule 3)."""

from collections import deque
from dataclasses import dataclass, field

from cutwater.checkpoint.events import RequestId, SavepointRequested
from cutwater.checkpoint.pending import PendingCheckpoint
from cutwater.checkpoint.statistics import CheckpointKind
from cutwater.checkpoint.trigger import Occasion
from cutwater.config import Checkpointing
from cutwater.flow.ids import CheckpointId, SubtaskId


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

    def take_for(self, occasion: Occasion, now: float, expires_at: float) -> "Reservation":
        match occasion:
            case Occasion.SAVEPOINT:
                savepoint = self._savepoints.popleft()
                return Reservation(occasion, now, expires_at, [savepoint.request], savepoint)
            case Occasion.MANUAL | Occasion.FINAL:
                requests, self._manual = self._manual, []
                return Reservation(occasion, now, expires_at, requests)
            case Occasion.PERIODIC:
                return Reservation(occasion, now, expires_at)

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
    """A checkpoint that has been decided on and waits for its id. A storage that gives none until ``expires_at`` has failed."""

    occasion: Occasion
    since: float
    expires_at: float
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
    def stops(self) -> bool:
        return self.savepoint is not None and self.savepoint.stop

    @property
    def is_abandoned(self) -> bool:
        """A savepoint nobody waits for any more; other checkpoints are useful in themselves."""
        return self.savepoint is not None and not self.requests

    def begin(
        self,
        checkpoint: CheckpointId,
        settings: Checkpointing,
        subtasks: frozenset[SubtaskId],
        now: float,
        *,
        all_input_ended: bool,
    ) -> PendingCheckpoint:
        """The checkpoint, now that it has its id. It is the final one if the last input ended in the meantime.

        Savepoints are always aligned (rule 4); with an alignment timeout the others start aligned (rule 17).
        """
        may_be_unaligned = settings.unaligned and self.savepoint is None
        timeout = settings.aligned_timeout if may_be_unaligned else None
        final = all_input_ended and self.savepoint is None
        return PendingCheckpoint(
            checkpoint,
            CheckpointKind.FINAL if final else self.kind,
            subtasks=subtasks,
            triggered_at=now,
            expires_at=now + settings.timeout.total_seconds(),
            unaligned=may_be_unaligned and timeout is None,
            cut_at=now + timeout.total_seconds() if timeout is not None else None,
            requests=tuple(self.requests),
            path=self.savepoint.path if self.savepoint is not None else None,
            stop=self.stops,
        )
