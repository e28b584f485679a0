"""Texts and bytes as accumulators: cells of (address, size) in the rows of a table; the bytes stand elsewhere and never change.

An address of 0 stands for null. Who calls makes room for bytes: a kernel that finds none comes back and is called again.
"""

import numpy as np
import numpy.typing as npt

from cutwater.flow.compiled import inlined, kernel
from cutwater.state.accumulator_kernels import AHEAD, FIRST, LAST, MIN
from cutwater.state.index_kernels import CHUNK_BITS, CHUNK_ROWS
from cutwater.state.key_kernels import copy_bytes
from cutwater.state.pointers import fence, load_byte, load_int, load_word, prefetch, store_int

# Fields of the state array that the kernels and their caller share.
ARENA_AT, ARENA_END, NEEDED, RESUME, LIVE, DEAD, FIELDS = range(7)

DONE, ADD_ARENA = range(2)

CELL_WORDS = 2
"""The address, then the size."""

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int32]


@inlined
def _compared(a, a_size, b, b_size):  # type: ignore[no-untyped-def]
    """Negative, 0 or positive, as a stands before b: texts in the order of their code points, as Python has them."""
    shorter = min(a_size, b_size)
    at = 0
    while at + 8 <= shorter and load_word(a + at) == load_word(b + at):
        at += 8
    while at < shorter:
        difference = np.int64(load_byte(a + at)) - np.int64(load_byte(b + at))
        if difference != 0:
            return difference
        at += 1
    return a_size - b_size


@inlined
def _store(cell, at, size, state):  # type: ignore[no-untyped-def]
    to = state[ARENA_AT]
    copy_bytes(to, at, size)
    state[ARENA_AT] = to + size
    fence()  # the bytes are there before anybody is sent to them
    store_int(cell, to)
    store_int(cell + 8, size)


@inlined
def _has_room(size, state):  # type: ignore[no-untyped-def]
    """Also nothing needs a place: its address must not be 0."""
    return state[ARENA_AT] != 0 and state[ARENA_AT] + size <= state[ARENA_END]


@kernel("int64(ro(int32), ro(int64), ro(uint8), ro(uint8), ro(int64), int64, int64, int64, rw(int64))")
def update(
    rows: Rows,
    offsets: Words,
    data: Bytes,
    valid: Bytes,
    chunks: Words,
    width: int,
    word: int,
    merge: int,
    state: Words,
) -> int:
    """Let values join the cells at ``word`` of ``rows``, in order, from ``state[RESUME]`` on."""
    n = len(rows)
    stride = width * 8
    for i in range(state[RESUME], n):
        if i + AHEAD < n:
            later = np.int64(rows[i + AHEAD])
            prefetch(chunks[later >> CHUNK_BITS] + (later & (CHUNK_ROWS - 1)) * stride + word * 8)
        if len(valid) > 0 and valid[i] == 0:
            continue
        row = np.int64(rows[i])
        cell = chunks[row >> CHUNK_BITS] + (row & (CHUNK_ROWS - 1)) * stride + word * 8
        at, size = data.ctypes.data + offsets[i], offsets[i + 1] - offsets[i]
        old, old_size = load_int(cell), np.int64(0)
        if old != 0:
            if merge == FIRST:
                continue
            old_size = load_int(cell + 8)
            order = _compared(at, size, old, old_size)
            if order == 0 or (merge != LAST and (order > 0) == (merge == MIN)):
                continue
        if not _has_room(size, state):
            state[NEEDED], state[RESUME] = size, i
            return ADD_ARENA
        _store(cell, at, size, state)
        state[LIVE] += size - old_size
        state[DEAD] += old_size
    state[RESUME] = 0
    return DONE


@kernel("void(ro(int32), ro(int64), ro(uint8), int64, ro(int64), int64, int64, rw(int64))")
def put(
    rows: Rows, offsets: Words, valid: Bytes, first: int, chunks: Words, width: int, word: int, state: Words
) -> None:
    """Into the cells at ``word`` of ``rows``, which are empty. Value i is in place: at ``first + offsets[i]``."""
    for i in range(len(rows)):
        if len(valid) > 0 and valid[i] == 0:
            continue
        row = np.int64(rows[i])
        cell = chunks[row >> CHUNK_BITS] + ((row & (CHUNK_ROWS - 1)) * width + word) * 8
        store_int(cell, first + offsets[i])
        store_int(cell + 8, offsets[i + 1] - offsets[i])
        state[LIVE] += offsets[i + 1] - offsets[i]


@inlined
def _is_among(at, starts, ends):  # type: ignore[no-untyped-def]
    """Is the address in one of these arenas, which are in order?"""
    low, high = 0, len(starts)
    while low < high:
        middle = (low + high) >> 1
        if starts[middle] <= at:
            low = middle + 1
        else:
            high = middle
    return low > 0 and at < ends[low - 1]


@kernel("int64(int64, int64, int64, ro(int64), ro(int64), rw(int64))")
def move(chunk: int, width: int, word: int, starts: Words, ends: Words, state: Words) -> int:
    """Write the texts of a chunk anew that are in arenas from ``starts`` to ``ends``, from cell ``state[RESUME]`` on. Whoever reads
    a cell meanwhile finds the same text. ``state``: of the move alone."""
    for i in range(state[RESUME], CHUNK_ROWS):
        cell = chunk + (i * width + word) * 8
        at = load_int(cell)
        if at == 0 or not _is_among(at, starts, ends):
            continue
        size = load_int(cell + 8)
        if not _has_room(size, state):
            state[NEEDED], state[RESUME] = size, i
            return ADD_ARENA
        _store(cell, at, size, state)
        state[LIVE] += size
    state[RESUME] = 0
    return DONE


@kernel("void(ro(int64), ro(int64), rw(int64))")
def offsets_of(addresses: Words, sizes: Words, out: Words) -> None:
    """Where each text will stand in what ``copy`` makes."""
    for i in range(len(addresses)):
        out[i + 1] = out[i] + (sizes[i] if addresses[i] != 0 else 0)


@kernel("void(ro(int64), ro(int64), rw(uint8))")
def copy(addresses: Words, offsets: Words, out: Bytes) -> None:
    for i in range(len(addresses)):
        copy_bytes(out.ctypes.data + offsets[i], addresses[i], offsets[i + 1] - offsets[i])
