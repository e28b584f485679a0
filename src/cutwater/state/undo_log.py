"""What rows were like when a snapshot was taken that is still being read.

The loop copies chunks that a snapshot sees before it writes to them, but only so many with each batch: in a large table the first
batch behind a cut touches nearly all of them. In the others it writes to the only copy there is. Before it does so for the first
time since the freeze, the row goes into the log; a reader copies a chunk and then puts the rows back that the log has. Whatever
the loop changed by then, the log had before: so no row that a reader gets was ever changed under its eyes.
"""

import numpy as np
import numpy.typing as npt

from cutwater.state import accumulator_kernels as ak
from cutwater.state.pointers import address
from cutwater.state.tables import Rows

BLOCK_BYTES = 1 << 20

Words = npt.NDArray[np.int64]


class UndoLog:
    """Belongs to the loop. Each chunk has the entries of its rows in a chain; the newest is named behind its rows."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._state = np.zeros(ak.UNDO_FIELDS, np.int64)
        self._blocks: list[npt.NDArray[np.uint8]] = []

    @property
    def is_empty(self) -> bool:
        return not self._blocks

    @property
    def bytes(self) -> int:
        return sum(len(block) for block in self._blocks)

    def save(self, rows: Rows, chunks: Words, written: Words, frozen: int, epoch: int, known: int) -> None:
        """Before ``rows`` are written to: those of them that were not written in this ``epoch`` yet, in chunks last ``written``
        before the freeze ``frozen``. Rows from ``known`` on are in no snapshot."""
        while ak.save(rows, chunks, self._width, written, frozen, epoch, known, self._state) != ak.SAVED:
            self._blocks.append(np.empty(BLOCK_BYTES, np.uint8))
            self._state[ak.UNDO_AT] = address(self._blocks[-1])
            self._state[ak.UNDO_END] = self._state[ak.UNDO_AT] + BLOCK_BYTES

    def clear(self, chunks: Words, count: int) -> None:
        """When no snapshot is being read."""
        ak.clear_heads(chunks[:count], self._width)
        self._blocks.clear()
        self._state[:] = 0


class FrozenChunks:
    """The chunks as they were when this was made, for another thread. Keeps alive what it reads."""

    def __init__(self, arrays: tuple[Words, ...], addresses: Words, width: int, log: UndoLog) -> None:
        self.arrays = arrays
        self._addresses = addresses
        self._width = width
        self._log = log
        self._heads = np.empty(len(arrays), np.int64)
        ak.heads(addresses[: len(arrays)], width, self._heads)

    def copies(self, first: int, last: int) -> tuple[Words, npt.NDArray[np.int64]]:
        """Chunks ``first`` to ``last``: their memory, to be kept as long as the addresses are used, and the addresses."""
        chunks = self.arrays[first : last + 1]
        copies = np.empty((len(chunks), len(chunks[0])), np.int64)
        for copy, chunk in zip(copies, chunks, strict=True):
            np.copyto(copy, chunk)
        to = address(copies) + copies.strides[0] * np.arange(len(chunks), dtype=np.int64)
        ak.undo(to, self._addresses[first : last + 1], self._width, self._heads[first : last + 1])
        return copies, to
