"""Memory that a table has no use for at the moment."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

AT_ONCE = 16
"""So many are given back with a batch: with hundreds, the system is busy for as long as many batches take."""

Block = npt.NDArray[np.uint8]


class SpareBlocks:
    """Used again before new ones are asked for, which the system has to find first. Belongs to the loop."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []

    @property
    def nbytes(self) -> int:
        return sum(len(block) for block in self._blocks)

    def add(self, blocks: Iterable[Block]) -> None:
        self._blocks.extend(blocks)

    def block(self, size: int) -> Block:
        """With anything in it."""
        if self._blocks and len(self._blocks[-1]) == size:
            return self._blocks.pop()
        return np.empty(size, np.uint8)

    def give_back_some(self) -> None:
        del self._blocks[-AT_ONCE:]
