"""Accumulators that are texts or bytes: kept as such, not as Python objects, so that loop and snapshots do not need the GIL."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cutwater.flow.arrow import Array
from cutwater.flow.columns import BytesColumn, array_of_bytes, flatten
from cutwater.state import text_kernels as tk
from cutwater.state.pointers import address
from cutwater.state.snapshots import Snapshots
from cutwater.state.spare_blocks import Block
from cutwater.state.tables import Column, Merge, Rows
from cutwater.state.text_arenas import Generation, TextArenas, bounds

ARENA_BYTES = 1 << 20
DEAD_BYTES = 8 << 20
"""Fewer bytes of replaced texts are not worth looking after."""
MOVED_PER_WRITTEN = 2
"""While texts are moved together, for each byte that is written so many are moved: it ends before much more has come."""

Words = npt.NDArray[np.int64]

_MERGES = (Merge.MIN, Merge.MAX, Merge.FIRST, Merge.LAST)


class TextColumn:
    """Bytes are only ever appended, and a cell in the table's row names where. What was replaced stays where it is. When that is
    more than what lives, live texts are written anew, a few chunks with each batch, and the places before are forgotten, as
    soon as no snapshot is read that may send somebody there. Those that no snapshot sees are moved while it is read, too.
    """

    def __init__(self, column: Column, word: int, snapshots: Snapshots) -> None:
        """``word``: where in a row the cell begins. ``snapshots``: of the table."""
        self.column = column
        self.word = word
        self._arenas = TextArenas(snapshots)
        self._state = np.zeros(tk.FIELDS, np.int64)
        self._moving: _Moving | None = None

    def update(self, rows: Rows, merge: Merge, values: Array, chunks: Words, width: int) -> None:
        assert merge in _MERGES, f"{merge!r} of {self.column.type}"
        flat = flatten(values)
        assert isinstance(flat, BytesColumn)
        self._arenas.follow_snapshots()
        before = self.live_bytes
        given = (rows, flat.offsets, flat.data, flat.valid, chunks, width, self.word, int(merge))
        while tk.update(*given, self._state) != tk.DONE:
            _write_to(self._arenas.begin(_needed(self._state)), self._state)
        replaced = int(self._state[tk.DEAD])
        self._state[tk.DEAD] = 0
        self._arenas.wrote(self.live_bytes - before + replaced, replaced=replaced)

    def put(self, rows: Rows, values: Array, chunks: Words, width: int) -> None:
        """Into cells that are empty."""
        flat = flatten(values)
        assert isinstance(flat, BytesColumn)
        # A copy: what the values are in may be a file that is mapped, and go.
        arena = flat.data[flat.offsets[0] : flat.offsets[-1] + 1].copy()
        self._arenas.follow_snapshots()
        self._arenas.add(arena)
        first = address(arena) - int(flat.offsets[0])
        tk.put(rows, flat.offsets, flat.valid, first, chunks, width, self.word, self._state)

    def tidy(self, written: int, chunks: Words, width: int) -> None:
        """Behind a batch with so many bytes."""
        self._arenas.give_back_some()
        live = self.live_bytes
        if self._moving is None:
            taken = self._arenas.take(max(DEAD_BYTES, live))
            if taken is None:
                return
            self._moving = _Moving(taken, *bounds(taken.arenas))
            self._state[[tk.ARENA_AT, tk.ARENA_END]] = 0
        moving = self._moving
        of_chunk = max(1, live // len(chunks))
        stop = min(len(chunks), moving.chunk + 1 + MOVED_PER_WRITTEN * written // of_chunk)
        for chunk in range(moving.chunk, stop):
            given = (int(chunks[chunk]), width, self.word, moving.starts, moving.ends)
            while tk.move(*given, moving.state) != tk.DONE:
                _write_to(self._arenas.begin_instead(_needed(moving.state), moving.taken), moving.state)
        moving.chunk = stop
        if stop == len(chunks):
            self._arenas.leave(moving.taken, int(moving.state[tk.LIVE]))
            self._moving = None

    @property
    def live_bytes(self) -> int:
        """Of the texts that are in cells."""
        return int(self._state[tk.LIVE])

    @property
    def held_bytes(self) -> int:
        moved = 0 if self._moving is None else sum(len(arena) for arena in self._moving.taken.arenas)
        return self._arenas.nbytes + moved

    def texts(self, addresses: Words, sizes: Words) -> Array:
        """The texts of cells. Who holds cells of a snapshot holds this column, which keeps the bytes."""
        offsets = np.zeros(len(addresses) + 1, np.int64)
        tk.offsets_of(addresses, sizes, offsets)
        data = np.empty(int(offsets[-1]), np.uint8)
        tk.copy(addresses, offsets, data)
        return array_of_bytes(offsets, data, addresses != 0, self.column.type)


@dataclass(slots=True)
class _Moving:
    """Out of the arenas of ``taken``, to others that the same freezes see. ``chunk``: the next one to move."""

    taken: Generation
    starts: Words
    ends: Words
    state: Words = field(default_factory=lambda: np.zeros(tk.FIELDS, np.int64))
    chunk: int = 0


def _needed(state: Words) -> int:
    return max(ARENA_BYTES, int(state[tk.NEEDED]))


def _write_to(arena: Block, state: Words) -> None:
    state[tk.ARENA_AT] = address(arena)
    state[tk.ARENA_END] = address(arena) + len(arena)
