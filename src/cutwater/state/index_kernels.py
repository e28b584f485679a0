"""The index of a table: open addressing over 16-byte entries in 64 parts, each grown by itself.

An entry is the key's hash, then (stamp << 32 | row + 1); zero is free. The part is chosen by the hash's top bits, the slot by
its middle ones, because the low ones choose the key group and are alike within a subtask. The stamp is the number of the last
batch that touched the key: it tells first touches apart without a second look anywhere else.
"""

import numpy as np
import numpy.typing as npt

from cutwater.flow.compiled import inlined, kernel
from cutwater.flow.hashing import NULL_HASH
from cutwater.state.pointers import load_byte, load_int, load_word, prefetch, store_byte, store_int, store_word

PARTS = 64
CHUNK_BITS = 12
CHUNK_ROWS = 1 << CHUNK_BITS

# Fields of the state array that the kernel and its caller share.
ROWS, CAPACITY, STAMP, NULL_ROW, NULL_STAMP, TOUCHED, RESUME, PART, ARENA_AT, ARENA_END, NEEDED, FIELDS = range(12)

# Why ``locate`` came back.
DONE, GROW_PART, ADD_CHUNK, ADD_ARENA = range(4)

AHEAD = 12
"""How many records ahead the index entry is fetched: about a memory latency's worth of work."""

PART_SHIFT, SLOT_SHIFT = np.uint64(58), np.uint64(24)
ROW_BITS = np.uint64(0xFFFFFFFF)
STAMP_SHIFT = np.uint64(32)
FREE = np.uint64(0)
ONE = np.uint64(1)

Words = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


@inlined
def same_bytes(a, b, size):  # type: ignore[no-untyped-def]
    """As ``copy_bytes`` goes through them."""
    at = 0
    if size >= 8:
        while at + 8 < size:
            if load_word(a + at) != load_word(b + at):
                return False
            at += 8
        return load_word(a + size - 8) == load_word(b + size - 8)
    while at < size:
        if load_byte(a + at) != load_byte(b + at):
            return False
        at += 1
    return True


@kernel(
    "int64(ro(uint64), ro(uint8), int64, ro(int64), rw(int64), ro(int64), ro(int64), rw(int64), ro(int64), "
    "ro(int64), ro(int64), rw(int32), rw(int64), rw(int32))"
)
def locate(
    hashes: Hashes, valid: npt.NDArray[np.uint8], encoded: int, offsets: Words, state: Words,
    part_at: Words, part_mask: Words, part_used: Words, part_limit: Words,
    hash_chunks: Words, key_chunks: Words,
    rows: npt.NDArray[np.int32], first: Words, unique: npt.NDArray[np.int32],
) -> int:  # fmt: skip
    """Find or make the row of each record from ``state[RESUME]`` on; stops when the caller must make room.

    ``encoded`` is the address of the keys' bytes (key i: ``offsets[i]`` to ``offsets[i + 1]``), or 0 when equal hashes mean
    equal keys. ``valid`` marks null keys, in that case only: their hash could be that of another key.
    """
    n = len(hashes)
    stamp = np.uint64(state[STAMP]) << STAMP_SHIFT
    touched = state[TOUCHED]
    for i in range(state[RESUME], n):
        if i + AHEAD < n:
            later = hashes[i + AHEAD]
            part = np.int64(later >> PART_SHIFT)
            prefetch(part_at[part] + (np.int64(later >> SLOT_SHIFT) & part_mask[part]) * 16)
        h = hashes[i]
        row = np.int64(-1)
        is_new = False
        is_first = False
        if len(valid) > 0 and valid[i] == 0:
            row = state[NULL_ROW]
            if row < 0:
                if state[ROWS] == state[CAPACITY]:
                    state[RESUME], state[TOUCHED] = i, touched
                    return ADD_CHUNK
                row = state[ROWS]
                state[ROWS] = row + 1
                state[NULL_ROW] = row
                store_word(hash_chunks[row >> CHUNK_BITS] + (row & (CHUNK_ROWS - 1)) * 8, NULL_HASH)
            if state[NULL_STAMP] != state[STAMP]:
                state[NULL_STAMP] = state[STAMP]
                is_first = True
        else:
            part = np.int64(h >> PART_SHIFT)
            base, mask = part_at[part], part_mask[part]
            slot = np.int64(h >> SLOT_SHIFT) & mask
            while True:
                entry = base + slot * 16
                packed = load_word(entry + 8)
                if packed == FREE:
                    is_new = True
                    break
                if load_word(entry) == h:
                    found = np.int64(packed & ROW_BITS) - 1
                    same = True
                    if encoded != 0:
                        key = key_chunks[found >> CHUNK_BITS] + (found & (CHUNK_ROWS - 1)) * 16
                        size = offsets[i + 1] - offsets[i]
                        same = load_int(key + 8) == size and same_bytes(load_int(key), encoded + offsets[i], size)
                    if same:
                        row = found
                        if (packed & ~ROW_BITS) != stamp:
                            store_word(entry + 8, stamp | (packed & ROW_BITS))
                            is_first = True
                        break
                slot = (slot + 1) & mask
            if is_new:
                reason = DONE
                if part_used[part] >= part_limit[part]:
                    state[PART] = part
                    reason = GROW_PART
                elif state[ROWS] == state[CAPACITY]:
                    reason = ADD_CHUNK
                elif encoded != 0 and state[ARENA_AT] + offsets[i + 1] - offsets[i] > state[ARENA_END]:
                    state[NEEDED] = offsets[i + 1] - offsets[i]
                    reason = ADD_ARENA
                if reason != DONE:
                    state[RESUME], state[TOUCHED] = i, touched
                    return reason
                row = state[ROWS]
                state[ROWS] = row + 1
                part_used[part] += 1
                at = row & (CHUNK_ROWS - 1)
                store_word(hash_chunks[row >> CHUNK_BITS] + at * 8, h)
                if encoded != 0:
                    size = offsets[i + 1] - offsets[i]
                    to = state[ARENA_AT]
                    for b in range(size):
                        store_byte(to + b, load_byte(encoded + offsets[i] + b))
                    state[ARENA_AT] = to + size
                    key = key_chunks[row >> CHUNK_BITS] + at * 16
                    store_int(key, to)
                    store_int(key + 8, size)
                store_word(entry, h)
                store_word(entry + 8, stamp | np.uint64(row + 1))
                is_first = True
        rows[i] = row
        if is_first:
            first[touched] = i
            unique[touched] = row
            touched += 1
    state[RESUME], state[TOUCHED] = n, touched
    return DONE


@kernel("void(ro(uint64), ro(uint8), int64, ro(int64), ro(int64), ro(int64), ro(int64), ro(int64), rw(int32))")
def find(
    hashes: Hashes, valid: npt.NDArray[np.uint8], encoded: int, offsets: Words, state: Words,
    part_at: Words, part_mask: Words, key_chunks: Words, rows: npt.NDArray[np.int32],
) -> None:  # fmt: skip
    """``locate`` that makes no rows: -1 for a key that has none."""
    n = len(hashes)
    for i in range(n):
        if i + AHEAD < n:
            later = hashes[i + AHEAD]
            part = np.int64(later >> PART_SHIFT)
            prefetch(part_at[part] + (np.int64(later >> SLOT_SHIFT) & part_mask[part]) * 16)
        if len(valid) > 0 and valid[i] == 0:
            rows[i] = state[NULL_ROW]
            continue
        h = hashes[i]
        part = np.int64(h >> PART_SHIFT)
        slot = np.int64(h >> SLOT_SHIFT) & part_mask[part]
        rows[i] = -1
        while True:
            packed = load_word(part_at[part] + slot * 16 + 8)
            if packed == FREE:
                break
            if load_word(part_at[part] + slot * 16) == h:
                found = np.int64(packed & ROW_BITS) - 1
                same = True
                if encoded != 0:
                    key = key_chunks[found >> CHUNK_BITS] + (found & (CHUNK_ROWS - 1)) * 16
                    size = offsets[i + 1] - offsets[i]
                    same = load_int(key + 8) == size and same_bytes(load_int(key), encoded + offsets[i], size)
                if same:
                    rows[i] = found
                    break
            slot = (slot + 1) & part_mask[part]


@kernel("void(ro(int32), ro(int64), int64, rw(int64))")
def gather(rows: npt.NDArray[np.int32], chunks: Words, words: int, out: Words) -> None:
    """The words that ``rows`` have in ``chunks``, one row behind the other."""
    for i in range(len(rows)):
        row = np.int64(rows[i])
        at = chunks[row >> CHUNK_BITS] + (row & (CHUNK_ROWS - 1)) * words * 8
        for word in range(words):
            out[i * words + word] = load_int(at + word * 8)


@kernel("void(ro(uint64), rw(uint64))")
def rehash(old: Hashes, new: Hashes) -> None:
    """Move all entries of a part into a larger, empty one."""
    mask = len(new) // 2 - 1
    for i in range(0, len(old), 2):
        if old[i + 1] != FREE:
            slot = np.int64(old[i] >> SLOT_SHIFT) & mask
            while new[2 * slot + 1] != FREE:
                slot = (slot + 1) & mask
            new[2 * slot] = old[i]
            new[2 * slot + 1] = old[i + 1]


@kernel("void(rw(uint64))")
def clear_stamps(part: Hashes) -> None:
    """Before the batch number starts over."""
    for i in range(1, len(part), 2):
        part[i] &= ROW_BITS
