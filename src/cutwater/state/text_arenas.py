"""Room for the bytes of texts, while some are replaced and snapshots are read.

The freezes that are read divide time. What was written behind one of them, it does not see: a text that was written behind the
latest and replaced again belongs to nobody. So arenas are kept by the freeze behind which they were begun, and the texts of each
such generation are moved together by themselves. The arenas that they leave are free as soon as all snapshots are released that
may send somebody there: those that were frozen behind the generation began, and before the last text had left.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cutwater.state.pointers import address
from cutwater.state.snapshots import Snapshots
from cutwater.state.spare_blocks import Block, SpareBlocks

Words = npt.NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Generation:
    """``arenas`` that were begun behind freeze ``since`` (0: before any that is read): only later ones see what is there."""

    since: int
    arenas: list[Block] = field(default_factory=list)
    filled: int = 0
    """Bytes of texts that were written there, or to the last arena before."""
    dead: int = 0
    """Bytes that were replaced before the next generation began, there or in those before."""
    dead_before: int = 0
    """Of these, as far as it is known: in those before, where the freeze sees them."""


@dataclass(frozen=True, slots=True)
class Left:
    """Arenas in which nothing lives any more, seen by freezes that come behind ``since``, ``until`` the last of them."""

    arenas: list[Block]
    since: int
    until: int


class TextArenas:
    """Belongs to the loop. Others freeze and release meanwhile, but do not freeze while it writes."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._generations = [Generation(0)]
        self._left: list[Left] = []
        self._spare = SpareBlocks()

    @property
    def nbytes(self) -> int:
        kept = [each.arenas for each in self._generations] + [each.arenas for each in self._left]
        return sum(len(arena) for arenas in kept for arena in arenas) + self._spare.nbytes

    def follow_snapshots(self) -> None:
        """Before anything is written."""
        read = self._snapshots.being_read
        generations = self._generations
        for earlier, later in zip(generations[-2::-1], generations[:0:-1], strict=True):
            if later.since not in read:
                earlier.arenas += later.arenas
                earlier.filled += later.filled
                earlier.dead += later.dead + later.dead_before
                generations.remove(later)
        generations.extend(Generation(freeze) for freeze in read if freeze > generations[-1].since)

    def add(self, arena: Block) -> None:
        """One that was filled just now."""
        self._generations[-1].arenas.append(arena)
        self._generations[-1].filled += len(arena)

    def begin(self, size: int) -> Block:
        """For what is written from now on."""
        return self._begin(size, self._generations[-1])

    def wrote(self, size: int, *, replaced: int) -> None:
        self._generations[-1].filled += size
        self._generations[-1].dead += replaced

    def take(self, dead: int) -> Generation | None:
        """A generation in which so many bytes were replaced. Whoever takes it moves what lives there."""
        for each in reversed(self._generations):
            if each.dead >= dead:
                taken = Generation(each.since, each.arenas, each.filled, each.dead)
                each.arenas, each.filled, each.dead = [], 0, 0
                return taken
        return None

    def begin_instead(self, size: int, taken: Generation) -> Block:
        """For what is moved, which the same freezes see as before."""
        return self._begin(size, self._heir(taken))

    def leave(self, taken: Generation, moved: int) -> None:
        """All that lived there was moved: so many bytes."""
        self._left.append(Left(taken.arenas, taken.since, self._snapshots.epoch))
        self._free()
        heir = self._heir(taken)
        heir.filled += moved
        elsewhere = max(0, taken.dead - (taken.filled - moved))
        if heir.since == taken.since:
            heir.dead_before += elsewhere
        else:
            heir.dead += elsewhere

    def give_back_some(self) -> None:
        """With each batch."""
        self._spare.give_back_some()
        if self._left:
            self._free()

    def _begin(self, size: int, generation: Generation) -> Block:
        arena = self._spare.block(size)
        generation.arenas.append(arena)
        return arena

    def _heir(self, taken: Generation) -> Generation:
        """It is another if the freeze was released meanwhile."""
        return next(each for each in reversed(self._generations) if each.since <= taken.since)

    def _free(self) -> None:
        read = self._snapshots.being_read
        still_seen = []
        for each in self._left:
            if any(each.since < freeze <= each.until for freeze in read):
                still_seen.append(each)
            else:
                self._spare.add(each.arenas)
        self._left = still_seen


def bounds(arenas: list[Block]) -> tuple[Words, Words]:
    """Where they begin and end, in order."""
    places: Iterator[tuple[int, int]] = ((address(arena), len(arena)) for arena in arenas)
    starts, sizes = np.array(sorted(places), np.int64).reshape(-1, 2).T
    return starts.copy(), starts + sizes
