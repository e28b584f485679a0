"""Accumulators: rows of 64-bit words in chunks, and behind the rows of a chunk the newest entry of its undo log.

Word 0 of a row has a bit for each column that is not null. Word 1 tells when the row was last written: in its upper half the
epoch, which begins anew with each freeze, in its lower half a stamp, by which increments tell what changed.
"""

import numpy as np
import numpy.typing as npt

from cutwater.flow.compiled import kernel
from cutwater.state.index_kernels import CHUNK_BITS, CHUNK_ROWS
from cutwater.state.pointers import (
    fence,
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
MAX_COLUMNS = 64
HEAD_WORDS = 2
HEAD_BYTES = 8 * HEAD_WORDS
ONE = np.uint64(1)
EPOCH_SHIFT = 32
STAMP_BITS = (1 << EPOCH_SHIFT) - 1

# Fields of the state array that ``save`` and its caller share, and why it came back.
UNDO_AT, UNDO_END, UNDO_RESUME, UNDO_FIELDS = range(4)
SAVED, ADD_BLOCK = range(2)
ENTRY_HEAD_BYTES = 16
"""The entry before it in its chunk, or 0; the row's place in the chunk, and in the upper half the epoch. The row's words follow."""
PLACE_BITS = (1 << EPOCH_SHIFT) - 1

Words = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int32]


@kernel("int64(ro(int32), ro(int64), int64, ro(int64), ro(int64), ro(int64), ro(int64), int64)")
def update(
    rows: Rows, chunks: Words, width: int, merges: Words, columns: Words, values: Words, valids: Words, mark: int
) -> int:
    """Let the records join their rows, in order. ``values`` and ``valids`` hold addresses, 0 for none. ``mark``: word 1.

    Returns -1, or the update whose 64-bit sum overflowed (the table is then half updated and must not be used).
    """
    n = len(rows)
    k = len(merges)
    stride = width * 8
    for i in range(n):
        if i + AHEAD < n:
            later = np.int64(rows[i + AHEAD])
            prefetch(chunks[later >> CHUNK_BITS] + (later & (CHUNK_ROWS - 1)) * stride)
        row = np.int64(rows[i])
        base = chunks[row >> CHUNK_BITS] + (row & (CHUNK_ROWS - 1)) * stride
        before = load_word(base)
        seen = before
        store_int(base + 8, mark)
        for j in range(k):
            if valids[j] != 0 and load_byte(valids[j] + i) == 0:
                continue
            at = base + HEAD_BYTES + columns[j] * 8
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


@kernel("void(ro(int32), ro(int64), int64, rw(int64), rw(uint64))")
def read(rows: Rows, chunks: Words, width: int, out: Words, seen: npt.NDArray[np.uint64]) -> None:
    """Copy the rows' words into ``out``, column after column, and their null bits."""
    n = len(rows)
    stride = width * 8
    for i in range(n):
        if i + AHEAD < n:
            later = np.int64(rows[i + AHEAD])
            prefetch(chunks[later >> CHUNK_BITS] + (later & (CHUNK_ROWS - 1)) * stride)
        row = np.int64(rows[i])
        base = chunks[row >> CHUNK_BITS] + (row & (CHUNK_ROWS - 1)) * stride
        seen[i] = load_word(base)
        for c in range(width - HEAD_WORDS):
            out[c * n + i] = load_int(base + HEAD_BYTES + c * 8)


@kernel("void(ro(int64), int64, rw(int64), rw(uint64))")
def read_run(chunks: Words, width: int, out: Words, seen: npt.NDArray[np.uint64]) -> None:
    """``read`` of as many rows as ``seen`` has room for, from the first of ``chunks`` on: a snapshot reads all of them."""
    n = len(seen)
    stride = width * 8
    for done in range(0, n, CHUNK_ROWS):
        base = chunks[done >> CHUNK_BITS]
        run = min(n - done, CHUNK_ROWS)
        for i in range(run):
            seen[done + i] = load_word(base + i * stride)
        for c in range(width - HEAD_WORDS):
            column = c * n + done
            for i in range(run):
                out[column + i] = load_int(base + i * stride + HEAD_BYTES + c * 8)


@kernel("void(ro(int64), int64, rw(int64))")
def stamps(chunks: Words, width: int, out: Words) -> None:
    """The stamps of as many rows as ``out`` has room for, from the first of ``chunks`` on."""
    for row in range(len(out)):
        out[row] = load_int(chunks[row >> CHUNK_BITS] + (row & (CHUNK_ROWS - 1)) * width * 8 + 8) & STAMP_BITS


@kernel("int64(ro(int32), rw(int64), int64, int64, rw(int64))")
def claim(rows: Rows, written: Words, frozen: int, epoch: int, shared: Words) -> int:
    """List chunks that ``rows`` lie in and that a frozen table sees, as many as there is room for, and mark them as written."""
    count = 0
    for i in range(len(rows)):
        chunk = np.int64(rows[i]) >> CHUNK_BITS
        if written[chunk] < frozen:
            if count == len(shared):
                break
            written[chunk] = epoch
            shared[count] = chunk
            count += 1
    return count


@kernel("int64(ro(int32), ro(int64), int64, ro(int64), int64, int64, int64, rw(int64))")
def save(
    rows: Rows, chunks: Words, width: int, written: Words, frozen: int, epoch: int, known: int, state: Words
) -> int:
    """See ``UndoLog.save``. From ``state[UNDO_RESUME]`` on, until there is no more room."""
    stride = width * 8
    size = ENTRY_HEAD_BYTES + stride
    n = len(rows)
    for i in range(state[UNDO_RESUME], n):
        if i + AHEAD < n:
            later = np.int64(rows[i + AHEAD])
            prefetch(chunks[later >> CHUNK_BITS] + (later & (CHUNK_ROWS - 1)) * stride)
        row = np.int64(rows[i])
        if row >= known or written[row >> CHUNK_BITS] >= frozen:
            continue
        chunk = chunks[row >> CHUNK_BITS]
        at = row & (CHUNK_ROWS - 1)
        base = chunk + at * stride
        if load_int(base + 8) >> EPOCH_SHIFT == epoch:
            continue
        entry = state[UNDO_AT]
        if entry + size > state[UNDO_END]:
            state[UNDO_RESUME] = i
            return ADD_BLOCK
        head = chunk + CHUNK_ROWS * stride
        store_int(entry, load_int(head))
        store_int(entry + 8, epoch << EPOCH_SHIFT | at)
        for w in range(width):
            store_word(entry + ENTRY_HEAD_BYTES + w * 8, load_word(base + w * 8))
        # Who finds the entry finds it whole.
        fence()
        store_int(head, entry)
        state[UNDO_AT] = entry + size
    state[UNDO_RESUME] = 0
    # Who sees a row changed finds its entry.
    fence()
    return SAVED


@kernel("void(ro(int64), int64, int64)")
def clear_heads(chunks: Words, width: int, before: int) -> None:
    """Of chunks whose newest entry is of an epoch ``before`` that."""
    for c in range(len(chunks)):
        head = chunks[c] + CHUNK_ROWS * width * 8
        entry = load_int(head)
        if entry != 0 and load_int(entry + 8) >> EPOCH_SHIFT < before:
            store_int(head, 0)


@kernel("void(ro(int64), int64, ro(int64), ro(int32), rw(int64), rw(uint64))")
def undo(chunks: Words, width: int, until: Words, places: Rows, out: Words, seen: npt.NDArray[np.uint64]) -> None:
    """Put back into what was read of ``chunks`` what the log has of their rows since its newest entries were ``until``, which may
    have been cleared by now. ``places``: where each row stands in what was read, -1 where it does not."""
    n = len(seen)
    fence()
    for c in range(len(chunks)):
        entry = load_int(chunks[c] + CHUNK_ROWS * width * 8)
        while entry != 0 and entry != until[c]:
            row = (c << CHUNK_BITS) + (load_int(entry + 8) & PLACE_BITS)
            # From the newest to the oldest: what a row was like first stays.
            if row < len(places) and places[row] >= 0:
                place = np.int64(places[row])
                words = entry + ENTRY_HEAD_BYTES
                seen[place] = load_word(words)
                for w in range(width - HEAD_WORDS):
                    out[w * n + place] = load_int(words + HEAD_BYTES + w * 8)
            entry = load_int(entry)


@kernel("void(ro(int64), int64, ro(int64), rw(int64))")
def undo_stamps(chunks: Words, width: int, until: Words, out: Words) -> None:
    """``undo`` of what ``stamps`` read."""
    fence()
    for c in range(len(chunks)):
        entry = load_int(chunks[c] + CHUNK_ROWS * width * 8)
        while entry != 0 and entry != until[c]:
            row = (c << CHUNK_BITS) + (load_int(entry + 8) & PLACE_BITS)
            if row < len(out):
                out[row] = load_int(entry + ENTRY_HEAD_BYTES + 8) & STAMP_BITS
            entry = load_int(entry)
