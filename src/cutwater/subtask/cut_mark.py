"""Where a subtask cuts, and since when it has heard of the checkpoint."""

from dataclasses import dataclass

from cutwater.flow.clock import Clock
from cutwater.flow.ids import CheckpointId


@dataclass(frozen=True, slots=True)
class Alignment:
    """From when a checkpoint was first heard of until all its barriers were there: how long, and what was processed
    meanwhile."""

    seconds: float = 0.0
    processed_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CutMark:
    """In the inbox: cut when everything before this was processed. ``unaligned``: cut now."""

    checkpoint: CheckpointId
    triggered_at: float
    first_barrier_at: float
    """Wall time; start delay = first_barrier_at - triggered_at."""
    alignment: Alignment = Alignment()
    """Of an unaligned cut, which waits for no barriers, so far."""
    savepoint: bool = False
    unaligned: bool = False


@dataclass(frozen=True, slots=True)
class FirstHeard:
    """By the first barrier of a checkpoint or by the driver."""

    triggered_at: float
    savepoint: bool
    wall: float
    monotonic: float
    taken_bytes: int


class HeardCheckpoints:
    """Those that are not cut yet. ``taken_bytes``: what the loop was given since it began."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._first: dict[CheckpointId, FirstHeard] = {}
        self.taken_bytes = 0

    def hear(self, checkpoint: CheckpointId, triggered_at: float, *, savepoint: bool) -> None:
        if checkpoint not in self._first:
            wall, monotonic = self._clock.wall(), self._clock.monotonic()
            self._first[checkpoint] = FirstHeard(triggered_at, savepoint, wall, monotonic, self.taken_bytes)

    def mark(self, checkpoint: CheckpointId, *, unaligned: bool) -> CutMark:
        first = self._first[checkpoint]
        return CutMark(
            checkpoint, first.triggered_at, first.wall, self.alignment_since(first), first.savepoint, unaligned
        )

    def alignment_since(self, first: FirstHeard) -> Alignment:
        return Alignment(self._clock.monotonic() - first.monotonic, self.taken_bytes - first.taken_bytes)

    def forget(self, checkpoint: CheckpointId) -> None:
        self._first.pop(checkpoint, None)

    def cut(self, checkpoint: CheckpointId) -> FirstHeard | None:
        """It was cut: neither it nor an older one is any more."""
        found = self._first.get(checkpoint)
        self._first = {n: first for n, first in self._first.items() if n > checkpoint}
        return found
