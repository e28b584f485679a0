"""How many records a run has moved: what a restart goes back over is counted once."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cutwater.checkpoint.statistics import CheckpointInfo, SubtaskCheckpointInfo
from cutwater.control.messages import Progress
from cutwater.flow.ids import CheckpointId, SubtaskId

CHECKPOINTS_COUNTED = 1000
"""For how many ids back it is remembered how many records had moved."""

Parts = Mapping[SubtaskId, Progress | SubtaskCheckpointInfo]


@dataclass(frozen=True, slots=True)
class Moved:
    """Records that sources gave and sinks took."""

    read: int = 0
    written: int = 0

    def __add__(self, other: "Moved") -> "Moved":
        return Moved(self.read + other.read, self.written + other.written)


class MovedRecords:
    """Over all attempts of a run. ``parts`` are an attempt's own counts, from its beginning on."""

    def __init__(self, sources: Collection[SubtaskId]) -> None:
        self._sources = sources
        self._before = Moved()
        self._at: dict[CheckpointId, Moved] = {}

    def checkpoint_completed(self, checkpoint: CheckpointId, info: CheckpointInfo) -> None:
        self._at[checkpoint] = self.so_far({SubtaskId(part.vertex, part.index): part for part in info.subtasks})
        self._at.pop(CheckpointId(checkpoint - CHECKPOINTS_COUNTED), None)

    def start_over(self) -> None:
        self._before = Moved()

    def go_back_to(self, checkpoint: CheckpointId) -> None:
        self._before = self._at.get(checkpoint, Moved())

    def go_on_behind(self, parts: Parts) -> None:
        """At most once: nothing is gone back over."""
        self._before = self.so_far(parts)

    def so_far(self, parts: Parts) -> Moved:
        return self._before + Moved(
            read=sum(part.records_in for subtask, part in parts.items() if subtask in self._sources),
            written=sum(part.records_written for part in parts.values()),
        )
