"""Accumulators that are texts or bytes: kept as such, not as Python objects, so that loop and snapshots do not need the GIL."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutwater.flow.arrow import Array
from cutwater.flow.columns import BytesColumn, array_of_bytes, flatten
from cutwater.state import text_kernels as tk
from cutwater.state.pointers import address
from cutwater.state.spare_blocks import SpareBlocks
from cutwater.state.tables import Column, Merge, Rows

ARENA_BYTES = 1 << 20
DEAD_BYTES = 8 << 20
"""Fewer bytes of replaced texts are not worth looking after."""
MOVED_PER_WRITTEN = 2
"""While texts are moved together, for each byte that is written so many are moved: it ends before much more has come."""

Words = npt.NDArray[np.int64]

_MERGES = (Merge.MIN, Merge.MAX, Merge.FIRST, Merge.LAST)


class TextColumn:
    """Bytes are only ever appended, and a cell in the table's row names where. What was replaced stays where it is. When that is
    more than what lives, all live texts are written anew, a few chunks with each batch, and the places before are forgotten, as
    soon as no snapshot is read that may send somebody there.
    """

    def __init__(self, column: Column, word: int) -> None:
        """``word``: where in a row the cell begins."""
        self.column = column
        self.word = word
        self._arenas: list[npt.NDArray[np.uint8]] = []
        self._spare = SpareBlocks()
        self._state = np.zeros(tk.FIELDS, np.int64)
        self._moving: _Moving | None = None

    def update(self, rows: Rows, merge: Merge, values: Array, chunks: Words, width: int) -> None:
        assert merge in _MERGES, f"{merge!r} of {self.column.type}"
        flat = flatten(values)
        assert isinstance(flat, BytesColumn)
        given = (rows, flat.offsets, flat.data, flat.valid, chunks, width, self.word, int(merge))
        while tk.update(*given, self._state) != tk.DONE:
            self._add_arena()

    def put(self, rows: Rows, values: Array, chunks: Words, width: int) -> None:
        """Into cells that are empty."""
        flat = flatten(values)
        assert isinstance(flat, BytesColumn)
        # A copy: what the values are in may be a file that is mapped, and go.
        arena = flat.data[flat.offsets[0] : flat.offsets[-1] + 1].copy()
        self._arenas.append(arena)
        first = address(arena) - int(flat.offsets[0])
        tk.put(rows, flat.offsets, flat.valid, first, chunks, width, self.word, self._state)

    def tidy(self, written: int, chunks: Words, width: int, *, is_read: bool) -> None:
        """Behind a batch with so many bytes. ``is_read``: by a snapshot."""
        self._spare.give_back_some()
        if self._moving is None:
            dead, live = int(self._state[tk.DEAD]), int(self._state[tk.LIVE])
            if dead < DEAD_BYTES or dead < live:
                return
            self._moving = _Moving(len(self._arenas))
            self._state[[tk.ARENA_AT, tk.ARENA_END, tk.DEAD]] = 0
        moving = self._moving
        of_chunk = max(1, int(self._state[tk.LIVE]) // len(chunks))
        stop = min(len(chunks), moving.chunk + 1 + MOVED_PER_WRITTEN * written // of_chunk)
        for chunk in range(moving.chunk, stop):
            while tk.move(int(chunks[chunk]), width, self.word, self._state) != tk.DONE:
                self._add_arena()
        moving.chunk = stop
        if stop == len(chunks) and not is_read:
            self._spare.add(self._arenas[: moving.arenas])
            del self._arenas[: moving.arenas]
            self._moving = None

    @property
    def live_bytes(self) -> int:
        """Of the texts that are in cells."""
        return int(self._state[tk.LIVE])

    @property
    def held_bytes(self) -> int:
        return sum(len(arena) for arena in self._arenas) + self._spare.nbytes

    def texts(self, addresses: Words, sizes: Words) -> Array:
        """The texts of cells. Who holds cells of a snapshot holds this column, which keeps the bytes."""
        offsets = np.zeros(len(addresses) + 1, np.int64)
        tk.offsets_of(addresses, sizes, offsets)
        data = np.empty(int(offsets[-1]), np.uint8)
        tk.copy(addresses, offsets, data)
        return array_of_bytes(offsets, data, addresses != 0, self.column.type)

    def _add_arena(self) -> None:
        arena = self._spare.block(max(ARENA_BYTES, int(self._state[tk.NEEDED])))
        self._arenas.append(arena)
        self._state[tk.ARENA_AT] = address(arena)
        self._state[tk.ARENA_END] = address(arena) + len(arena)


@dataclass(slots=True)
class _Moving:
    """``arenas``: how many there were, all to be forgotten. ``chunk``: the next one to move."""

    arenas: int
    chunk: int = 0
