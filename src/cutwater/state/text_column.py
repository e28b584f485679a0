"""Accumulators that are texts or bytes: kept as such, not as Python objects, so that loop and snapshots do not need the GIL."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutwater.flow.arrow import Array
from cutwater.flow.columns import BytesColumn, array_of_bytes, flatten
from cutwater.state import text_kernels as tk
from cutwater.state.key_index import AddressedChunks
from cutwater.state.pointers import address
from cutwater.state.tables import Column, Merge, Rows

ARENA_BYTES = 1 << 20
DEAD_BYTES = 8 << 20
"""Fewer bytes of replaced texts are not worth looking after."""
MOVED_PER_WRITTEN = 2
"""While texts are moved together, for each byte that is written so many are moved: it ends before much more has come."""

_MERGES = (Merge.MIN, Merge.MAX, Merge.FIRST, Merge.LAST)


class TextColumn:
    """Bytes are only ever appended, so a frozen column shares them; its cells are copied chunk by chunk when they change.

    What was replaced stays where it is. When that is more than what lives, all live texts are written anew, a few chunks with
    each batch, and the places before are forgotten.
    """

    def __init__(self, column: Column) -> None:
        self._column = column
        self.cells = AddressedChunks(tk.CELL_WORDS)
        self._arenas: list[npt.NDArray[np.uint8]] = []
        self._state = np.zeros(tk.FIELDS, np.int64)
        self._moving: _Moving | None = None

    def add(self) -> None:
        self.cells.add()

    def replace(self, chunk: int) -> None:
        self.cells.replace(chunk)

    def update(self, rows: Rows, merge: Merge, values: Array) -> None:
        assert merge in _MERGES, f"{merge!r} of {self._column.type}"
        flat = flatten(values)
        assert isinstance(flat, BytesColumn)
        while (
            tk.update(rows, flat.offsets, flat.data, flat.valid, self.cells.addresses, int(merge), self._state)
            != tk.DONE
        ):
            self._add_arena()

    def chunks_to_move(self, written: int) -> range:
        """Those that are to be moved now, behind a batch with so many bytes."""
        if self._moving is None:
            dead, live = int(self._state[tk.DEAD]), int(self._state[tk.LIVE])
            if dead < DEAD_BYTES or dead < live:
                return range(0)
            self._moving = _Moving(len(self._arenas))
            self._state[[tk.ARENA_AT, tk.ARENA_END, tk.DEAD]] = 0
        chunks = len(self.cells.arrays)
        of_chunk = max(1, int(self._state[tk.LIVE]) // chunks)
        return range(self._moving.chunk, min(chunks, self._moving.chunk + 1 + MOVED_PER_WRITTEN * written // of_chunk))

    def move(self, chunk: int) -> None:
        """The caller has made sure that no frozen column sees these cells."""
        assert self._moving is not None
        while tk.move(int(self.cells.addresses[chunk]), self._state) != tk.DONE:
            self._add_arena()
        self._moving.chunk = chunk + 1
        if self._moving.chunk == len(self.cells.arrays):
            del self._arenas[: self._moving.arenas]
            self._moving = None

    @property
    def held_bytes(self) -> int:
        return sum(len(arena) for arena in self._arenas)

    def read(self, rows: Rows) -> Array:
        return _read(self._column, rows, self.cells.addresses)

    def freeze(self) -> "FrozenTexts":
        cells = self.cells
        return FrozenTexts(self._column, tuple(cells.arrays), cells.addresses.copy(), tuple(self._arenas), cells)

    def _add_arena(self) -> None:
        arena = np.empty(max(ARENA_BYTES, int(self._state[tk.NEEDED])), np.uint8)
        self._arenas.append(arena)
        self._state[tk.ARENA_AT] = address(arena)
        self._state[tk.ARENA_END] = address(arena) + len(arena)


@dataclass(slots=True)
class _Moving:
    """``arenas``: how many there were, all to be forgotten. ``chunk``: the next one to move."""

    arenas: int
    chunk: int = 0


@dataclass(frozen=True, slots=True)
class FrozenTexts:
    """The column as it was: its arrays and arenas are kept for the addresses."""

    column: Column
    arrays: Sequence[npt.NDArray[np.int64]]
    addresses: npt.NDArray[np.int64]
    arenas: Sequence[npt.NDArray[np.uint8]]
    live: AddressedChunks

    def read(self, rows: Rows) -> Array:
        return _read(self.column, rows, self.addresses)

    def release(self) -> None:
        self.live.take_back(self.arrays)


def _read(column: Column, rows: Rows, chunks: npt.NDArray[np.int64]) -> Array:
    offsets = np.zeros(len(rows) + 1, np.int64)
    valid = np.empty(len(rows), np.uint8)
    tk.sizes(rows, chunks, offsets, valid)
    data = np.empty(int(offsets[-1]), np.uint8)
    tk.texts(rows, chunks, offsets, data)
    return array_of_bytes(offsets, data, valid.view(np.bool_), column.type)
