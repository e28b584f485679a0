"""The names of things that talk to each other."""

from dataclasses import dataclass
from typing import NewType

CheckpointId = NewType("CheckpointId", int)
"""Never repeats within a job's storage, across attempts, restarts and fallbacks."""

ChannelId = NewType("ChannelId", int)
"""One ordered stream of rows from one sending subtask to one receiving subtask; unique in a plan."""

Attempt = NewType("Attempt", int)
"""Which try at running the job this is; a higher one fences every lower one."""


@dataclass(frozen=True, slots=True, order=True)
class SubtaskId:
    """One parallel instance of one vertex (a chain of operators)."""

    vertex: str
    index: int

    def __str__(self) -> str:
        return f"{self.vertex}[{self.index}]"
