"""What rows were like when a snapshot was taken that is still being read.

The loop copies chunks that a snapshot sees before it writes to them, but only so many with each batch: in a large table the first
batch behind a cut touches nearly all of them. In the others it writes to the only copy there is. Before it does so for the first
time since the freeze, the row goes into the log; a reader reads rows and then puts those back that the log has. Whatever the loop
changed by then, the log had before: so no row that a reader gets was ever changed under its eyes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutwater.state import accumulator_kernels as ak
from cutwater.state.index_kernels import CHUNK_ROWS
from cutwater.state.pointers import address
from cutwater.state.spare_blocks import SpareBlocks
from cutwater.state.tables import Rows

BLOCK_BYTES = 1 << 20

Words = npt.NDArray[np.int64]


class UndoLog:
    """Belongs to the loop. Each chunk has the entries of its rows in a chain; the newest is named behind its rows."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._state = np.zeros(ak.UNDO_FIELDS, np.int64)
        self._blocks: list[npt.NDArray[np.uint8]] = []
        self._spare = SpareBlocks()

    @property
    def bytes(self) -> int:
        return sum(len(block) for block in self._blocks)

    def save(self, rows: Rows, chunks: Words, written: Words, frozen: int, epoch: int, known: int) -> None:
        """Before ``rows`` are written to: those of them that were not written in this ``epoch`` yet, in chunks last ``written``
        before the freeze ``frozen``. Rows from ``known`` on are in no snapshot."""
        while ak.save(rows, chunks, self._width, written, frozen, epoch, known, self._state) != ak.SAVED:
            self._blocks.append(self._spare.block(BLOCK_BYTES))
            self._state[ak.UNDO_AT] = address(self._blocks[-1])
            self._state[ak.UNDO_END] = self._state[ak.UNDO_AT] + BLOCK_BYTES

    def rest(self, chunks: Words) -> None:
        """With each batch while no snapshot is being read."""
        if self._blocks:
            ak.clear_heads(chunks, self._width)
            self._spare.add(self._blocks)
            self._blocks.clear()
            self._state[:] = 0
        self._spare.give_back_some()


@dataclass(frozen=True, slots=True)
class RowWords:
    """The words of some rows, column after column."""

    words: Words
    seen: npt.NDArray[np.uint64]
    """Of each row a bit for each column that is not null."""

    @classmethod
    def room(cls, rows: int, width: int) -> "RowWords":
        return cls(np.empty(rows * (width - ak.HEAD_WORDS), np.int64), np.empty(rows, np.uint64))

    def column(self, number: int) -> Words:
        rows = len(self.seen)
        return self.words[number * rows : (number + 1) * rows]


class FrozenChunks:
    """The chunks as they were when this was made, for another thread. Keeps alive what it reads."""

    def __init__(self, arrays: tuple[Words, ...], addresses: Words, width: int, log: UndoLog) -> None:
        self.arrays = arrays
        self._addresses = addresses[: len(arrays)].copy()
        self._width = width
        self._log = log
        self._heads = np.empty(len(arrays), np.int64)
        ak.heads(self._addresses, width, self._heads)

    def read(self, start: int, stop: int) -> RowWords:
        """Rows ``start``, which begins a chunk, to ``stop``."""
        chunks, heads = self._between(start, stop)
        read = RowWords.room(stop - start, self._width)
        ak.read_run(chunks, self._width, read.words, read.seen)
        places = np.arange(stop - start, dtype=np.int32)
        ak.undo(chunks, self._width, heads, places, read.words, read.seen)
        return read

    def read_some(self, start: int, stop: int, rows: Rows) -> RowWords:
        """Those of ``read`` that ``rows`` lists, counted from ``start``."""
        chunks, heads = self._between(start, stop)
        read = RowWords.room(len(rows), self._width)
        ak.read(rows, chunks, self._width, read.words, read.seen)
        places = np.full(stop - start, -1, np.int32)
        places[rows] = np.arange(len(rows), dtype=np.int32)
        ak.undo(chunks, self._width, heads, places, read.words, read.seen)
        return read

    def stamps(self, start: int, stop: int) -> Words:
        """When rows ``start``, which begins a chunk, to ``stop`` were last written."""
        chunks, heads = self._between(start, stop)
        stamps = np.empty(stop - start, np.int64)
        ak.stamps(chunks, self._width, stamps)
        ak.undo_stamps(chunks, self._width, heads, stamps)
        return stamps

    def _between(self, start: int, stop: int) -> tuple[Words, Words]:
        chunks = slice(start // CHUNK_ROWS, (stop - 1) // CHUNK_ROWS + 1)
        return self._addresses[chunks], self._heads[chunks]
