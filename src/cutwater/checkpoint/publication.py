"""What became of the attempt to make a checkpoint complete (rule 27)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    path: str


@dataclass(frozen=True, slots=True)
class CertainlyNotStored:
    """The checkpoint failed; its files may be deleted."""

    reason: str


@dataclass(frozen=True, slots=True)
class UnknownWhetherStored:
    """It may turn out to be complete at the next start: announce nothing, delete nothing of it."""

    reason: str


Publication = Published | CertainlyNotStored | UnknownWhetherStored
