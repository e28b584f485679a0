"""Output that checkpoints list, until every subtask has committed it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cutwater.checkpoint.completed import CommittedOutput, CompletedCheckpoint
from cutwater.flow.ids import CheckpointId

Json = Any


@dataclass(frozen=True, slots=True)
class VisibleOutput:
    """All that one sink made visible when ``checkpoint`` was committed by every subtask."""

    checkpoint: CheckpointId
    uid: str
    output: tuple[CommittedOutput, ...]

    @property
    def committables(self) -> list[Json]:
        return [each.value for each in self.output]


class UnconfirmedOutput:
    """Of one attempt. Each committable comes out once, with the first confirmed checkpoint that lists it: also one that an
    aborted checkpoint prepared, which only the next one commits (rule 41)."""

    def __init__(self) -> None:
        self._listed: dict[CheckpointId, tuple[CommittedOutput, ...]] = {}
        self._confirmed = CheckpointId(0)

    def add(self, checkpoint: CompletedCheckpoint) -> None:
        if checkpoint.has_committables():
            self._listed[checkpoint.id] = tuple(checkpoint.output())

    def is_listed_by(self, checkpoint: CheckpointId) -> bool:
        return checkpoint in self._listed

    def carried_past(
        self, checkpoint: CompletedCheckpoint, unheard: Iterable[CommittedOutput] = ()
    ) -> tuple[CommittedOutput, ...]:
        """What subtasks have committed, so that ``checkpoint`` no longer lists it, but not every subtask has said so, or its
        sink has not heard so: should the driver die now, whoever restores the checkpoint must still hear of it."""
        known = list(checkpoint.output())
        carried: list[CommittedOutput] = []
        listed = (each for output in self._listed.values() for each in output if each.checkpoint > self._confirmed)
        for each in (*unheard, *listed):
            if each not in known:
                carried.append(each)
                known.append(each)
        return tuple(carried)

    def confirm(self, checkpoint: CheckpointId) -> list[VisibleOutput]:
        """Every subtask has committed everything up to ``checkpoint``."""
        visible: list[VisibleOutput] = []
        for n in sorted(n for n in self._listed if n <= checkpoint):
            visible.extend(_by_sink(n, self._listed.pop(n), after=self._confirmed))
            self._confirmed = n
        return visible


def restored_output(checkpoint: CompletedCheckpoint) -> list[VisibleOutput]:
    """What is visible once every subtask has opened from ``checkpoint``."""
    return _by_sink(checkpoint.id, [*checkpoint.carried, *checkpoint.output()], after=CheckpointId(0))


def _by_sink(checkpoint: CheckpointId, output: Sequence[CommittedOutput], after: CheckpointId) -> list[VisibleOutput]:
    uids = dict.fromkeys(each.uid for each in output)
    return [
        VisibleOutput(checkpoint, uid, tuple(e for e in output if e.uid == uid and e.checkpoint > after))
        for uid in uids
    ]
