"""What rows were like when a snapshot was taken that is still being read.

The loop copies chunks that a snapshot sees before it writes to them, but only so many with each batch: in a large table the first
batch behind a cut touches nearly all of them. In the others it writes to the only copy there is. Before it does so for the first
time since the freeze, the row goes into the log; a reader reads rows and then puts those back that the log has. Whatever the loop
changed by then, the log had before: so no row that a reader gets was ever changed under its eyes.

A reader goes from the newest entry of a chunk back to the one that was the newest at its freeze, and looks at none before. So
entries are let go when no freeze is read that they came behind, though there is always some other one. Their memory is used again
only when nobody is left who remembers where they were.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutwater.state import accumulator_kernels as ak
from cutwater.state.cut_kernels import chunks_and_heads
from cutwater.state.index_kernels import CHUNK_ROWS
from cutwater.state.pointers import address
from cutwater.state.spare_blocks import Block, SpareBlocks
from cutwater.state.tables import Rows

BLOCK_BYTES = 1 << 20
EVERY_EPOCH = 1 << 31
"""None comes so far."""

Words = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Full:
    """A block with entries of ``epoch`` and perhaps of those before."""

    block: Block
    epoch: int


@dataclass(frozen=True, slots=True)
class Left:
    """Blocks whose entries nobody looks at any more. Freezes up to ``until`` may stop where they were."""

    blocks: list[Block]
    until: int


class UndoLog:
    """Belongs to the loop. Each chunk has the entries of its rows in a chain; the newest is named behind its rows."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._state = np.zeros(ak.UNDO_FIELDS, np.int64)
        self._full: list[Full] = []
        self._filling: Block | None = None
        self._left: list[Left] = []
        self._spare = SpareBlocks()

    @property
    def bytes(self) -> int:
        return sum(len(block) for block in self._blocks())

    def follow_snapshots(self, being_read: Sequence[int], epoch: int, chunks: Words) -> None:
        """With each batch, before its rows are saved. ``being_read``: freezes, oldest first."""
        if not being_read:
            self._rest(chunks)
            return
        oldest = being_read[0]
        unread = [full.block for full in self._full if full.epoch < oldest]
        if unread:
            ak.clear_heads(chunks, self._width, oldest)
            self._full = [full for full in self._full if full.epoch >= oldest]
            self._left.append(Left(unread, epoch))
        while self._left and self._left[0].until < oldest:
            self._spare.add(self._left.pop(0).blocks)

    def save(self, rows: Rows, chunks: Words, written: Words, frozen: int, epoch: int, known: int) -> None:
        """Before ``rows`` are written to: those of them that were not written in this ``epoch`` yet, in chunks last ``written``
        before the freeze ``frozen``. Rows from ``known`` on are in no snapshot."""
        while ak.save(rows, chunks, self._width, written, frozen, epoch, known, self._state) != ak.SAVED:
            if self._filling is not None:
                self._full.append(Full(self._filling, epoch))
            self._filling = self._spare.block(BLOCK_BYTES)
            self._state[ak.UNDO_AT] = address(self._filling)
            self._state[ak.UNDO_END] = self._state[ak.UNDO_AT] + BLOCK_BYTES

    def _rest(self, chunks: Words) -> None:
        """No snapshot is being read."""
        if blocks := self._blocks():
            ak.clear_heads(chunks, self._width, EVERY_EPOCH)
            self._spare.add(blocks)
            self._full, self._filling, self._left = [], None, []
            self._state[:] = 0
        self._spare.give_back_some()

    def _blocks(self) -> list[Block]:
        filling = [] if self._filling is None else [self._filling]
        return [block for left in self._left for block in left.blocks] + [full.block for full in self._full] + filling


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
        self._addresses = np.empty(len(arrays), np.int64)
        self._width = width
        self._log = log
        self._heads = np.empty(len(arrays), np.int64)
        chunks_and_heads(addresses, width, self._addresses, self._heads)

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
