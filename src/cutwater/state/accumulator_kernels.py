"""Accumulators: rows of 64-bit words in chunks.

Word 0 of a row has a bit for each column that is not null, and above them the stamp that the row was last written with: a
snapshot tells by it which rows changed. It stands there because the word is read and written anyway.
"""

import numpy as np
import numpy.typing as npt

from cutwater.flow.compiled import kernel
from cutwater.state.index_kernels import CHUNK_BITS, CHUNK_ROWS
from cutwater.state.pointers import (
    load_byte,
    load_float,
    load_int,
    load_word,
    prefetch,
    store_float,
    store_int,
    store_word,
)

COUNT, ADD, MIN, MAX, FIRST, LAST = range(6)
FLOAT = 8
"""Added to the merge's number for columns of floats."""
ADD_FLOAT, MIN_FLOAT, MAX_FLOAT = FLOAT + ADD, FLOAT + MIN, FLOAT + MAX
AHEAD = 12
MAX_COLUMNS = 40
ONE = np.uint64(1)
COLUMN_BITS = np.uint64((1 << MAX_COLUMNS) - 1)
STAMP_SHIFT = np.uint64(MAX_COLUMNS)
STAMPS = 1 << (64 - MAX_COLUMNS)

Words = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int32]


@kernel("int64(ro(int32), ro(int64), int64, ro(int64), ro(int64), ro(int64), ro(int64), int64)")
def update(
    rows: Rows, chunks: Words, width: int, merges: Words, columns: Words, values: Words, valids: Words, stamp: int
) -> int:
    """Let the records join their rows, in order. ``values`` and ``valids`` hold addresses, 0 for none.

    Returns -1, or the update whose 64-bit sum overflowed (the table is then half updated and must not be used).
    """
    n = len(rows)
    k = len(merges)
    stride = width * 8
    stamped = np.uint64(stamp) << STAMP_SHIFT
    for i in range(n):
        if i + AHEAD < n:
            later = np.int64(rows[i + AHEAD])
            prefetch(chunks[later >> CHUNK_BITS] + (later & (CHUNK_ROWS - 1)) * stride)
        row = np.int64(rows[i])
        base = chunks[row >> CHUNK_BITS] + (row & (CHUNK_ROWS - 1)) * stride
        before = load_word(base)
        seen = (before & COLUMN_BITS) | stamped
        for j in range(k):
            if valids[j] != 0 and load_byte(valids[j] + i) == 0:
                continue
            at = base + 8 + columns[j] * 8
            merge = merges[j]
            bit = ONE << np.uint64(columns[j])
            if merge == COUNT:
                store_int(at, load_int(at) + 1)
            elif merge == ADD:
                old = load_int(at)
                more = load_int(values[j] + i * 8)
                total = old + more
                if ((old ^ total) & (more ^ total)) < 0:
                    return j
                store_int(at, total)
            elif merge == ADD_FLOAT:
                store_float(at, load_float(at) + load_float(values[j] + i * 8))
            elif merge in (MIN_FLOAT, MAX_FLOAT):
                # NaN is larger than every number, as in Spark.
                x, y = load_float(values[j] + i * 8), load_float(at)
                if (seen & bit) == 0:
                    store_float(at, x)
                elif merge == MIN_FLOAT:
                    if x < y or y != y:
                        store_float(at, x)
                elif x > y or x != x:
                    store_float(at, x)
            else:
                value = load_int(values[j] + i * 8)
                if merge == LAST or merge == LAST + FLOAT or (seen & bit) == 0:
                    store_int(at, value)
                elif merge == MIN:
                    if value < load_int(at):
                        store_int(at, value)
                elif merge == MAX and value > load_int(at):
                    store_int(at, value)
            seen |= bit
        if seen != before:
            store_word(base, seen)
    return -1


@kernel("uint64(ro(int32), ro(int64), int64, rw(int64), rw(uint64))")
def read(rows: Rows, chunks: Words, width: int, out: Words, seen: npt.NDArray[np.uint64]) -> np.uint64:
    """Copy the rows' words into ``out``, column after column, and their null bits; returns the bits that all rows have."""
    n = len(rows)
    stride = width * 8
    common = ~np.uint64(0)
    for i in range(n):
        if i + AHEAD < n:
            later = np.int64(rows[i + AHEAD])
            prefetch(chunks[later >> CHUNK_BITS] + (later & (CHUNK_ROWS - 1)) * stride)
        row = np.int64(rows[i])
        base = chunks[row >> CHUNK_BITS] + (row & (CHUNK_ROWS - 1)) * stride
        seen[i] = load_word(base)
        common &= seen[i]
        for c in range(width - 1):
            out[c * n + i] = load_int(base + 8 + c * 8)
    return common


@kernel("uint64(int64, ro(int64), int64, rw(int64), rw(uint64))")
def read_run(first: int, chunks: Words, width: int, out: Words, seen: npt.NDArray[np.uint64]) -> np.uint64:
    """``read`` of as many rows as ``seen`` has room for, one behind the other: a snapshot reads all of them."""
    n = len(seen)
    stride = width * 8
    common = ~np.uint64(0)
    done = 0
    while done < n:
        row = first + done
        at = row & (CHUNK_ROWS - 1)
        base = chunks[row >> CHUNK_BITS] + at * stride
        run = min(n - done, CHUNK_ROWS - at)
        for i in range(run):
            bits = load_word(base + i * stride)
            seen[done + i] = bits
            common &= bits
        for c in range(width - 1):
            column = c * n + done
            for i in range(run):
                out[column + i] = load_int(base + i * stride + 8 + c * 8)
        done += run
    return common


@kernel("int64(ro(int64), int64, int64, int64, int64, rw(int32))")
def changed(chunks: Words, width: int, first: int, known: int, since: int, out: Rows) -> int:
    """Of as many rows from ``first`` on as ``out`` has room for, list those with a stamp above ``since``, and all from
    ``known`` on, which are new; returns how many."""
    stride = width * 8
    count = 0
    for row in range(first, first + len(out)):
        at = chunks[row >> CHUNK_BITS] + (row & (CHUNK_ROWS - 1)) * stride
        if row >= known or np.int64(load_word(at) >> STAMP_SHIFT) > since:
            out[count] = row
            count += 1
    return count


@kernel("int64(ro(int32), rw(int64), int64, int64, rw(int64))")
def claim(rows: Rows, written: Words, frozen: int, epoch: int, shared: Words) -> int:
    """List the chunks that ``rows`` lie in and that a frozen table may still see, and mark them as written now."""
    count = 0
    for i in range(len(rows)):
        chunk = np.int64(rows[i]) >> CHUNK_BITS
        if written[chunk] < frozen:
            written[chunk] = epoch
            shared[count] = chunk
            count += 1
    return count
