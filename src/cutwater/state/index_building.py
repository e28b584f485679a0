"""The index of a table whose rows are all there: made in one go, from their hashes.

One part after the other, so that what is written to stays in the processor's caches.
"""

import numpy as np
import numpy.typing as npt

from cutwater.flow.compiled import kernel
from cutwater.state.index_kernels import CHUNK_BITS, CHUNK_ROWS, FREE, PART_SHIFT, ROW_BITS, SLOT_SHIFT, same_bytes
from cutwater.state.pointers import load_int, load_word

Words = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int32]


@kernel("void(ro(int64), int64, int64, rw(int64))")
def count(hash_chunks: Words, rows: int, null_row: int, used: Words) -> None:
    """How many entries each part will have."""
    used[:] = 0
    for row in range(rows):
        if row != null_row:
            h = load_word(hash_chunks[row >> CHUNK_BITS] + (row & (CHUNK_ROWS - 1)) * 8)
            used[np.int64(h >> PART_SHIFT)] += 1


@kernel("void(ro(int64), int64, int64, rw(int64), rw(uint64), rw(int32))")
def by_part(hash_chunks: Words, rows: int, null_row: int, begins: Words, hashes: Hashes, numbers: Rows) -> None:
    """The hashes of all rows and their numbers, part by part. ``begins``: where each does, then where it ends."""
    for row in range(rows):
        if row != null_row:
            h = load_word(hash_chunks[row >> CHUNK_BITS] + (row & (CHUNK_ROWS - 1)) * 8)
            part = np.int64(h >> PART_SHIFT)
            hashes[begins[part]] = h
            numbers[begins[part]] = row
            begins[part] += 1


@kernel("int64(ro(uint64), ro(int32), ro(int64), rw(uint64))")
def build(hashes: Hashes, rows: Rows, key_chunks: Words, part: Hashes) -> int:
    """Enter rows into the part of theirs, which is empty and large enough. 0 if a key is there twice. ``key_chunks``: none when
    equal hashes mean equal keys."""
    mask = len(part) // 2 - 1
    for i in range(len(hashes)):
        h = hashes[i]
        row = np.int64(rows[i])
        slot = np.int64(h >> SLOT_SHIFT) & mask
        while part[2 * slot + 1] != FREE:
            if part[2 * slot] == h:
                if len(key_chunks) == 0:
                    return 0
                other = np.int64(part[2 * slot + 1] & ROW_BITS) - 1
                a = key_chunks[row >> CHUNK_BITS] + (row & (CHUNK_ROWS - 1)) * 16
                b = key_chunks[other >> CHUNK_BITS] + (other & (CHUNK_ROWS - 1)) * 16
                if load_int(a + 8) == load_int(b + 8) and same_bytes(load_int(a), load_int(b), load_int(a + 8)):
                    return 0
            slot = (slot + 1) & mask
        part[2 * slot] = h
        part[2 * slot + 1] = np.uint64(row + 1)
    return 1
