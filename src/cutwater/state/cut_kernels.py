"""What a cut copies and counts of large tables.

These kernels keep the interpreter. Whoever lets go of it, as numpy does for more than a few hundred numbers, has to get it back:
where another thread wants it too, that takes a millisecond each time, and the loop stands still for all of them.
"""

import numpy as np
import numpy.typing as npt

from cutwater.flow.compiled import kernel
from cutwater.state.index_kernels import CHUNK_ROWS
from cutwater.state.pointers import load_int

Words = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@kernel("void(ro(int64), int64, rw(int64), rw(int64))", keeps_interpreter=True)
def chunks_and_heads(chunks: Words, width: int, copied: Words, heads: Words) -> None:
    """The addresses of as many chunks as there is room for, and of each the newest entry of its undo log."""
    for c in range(len(copied)):
        copied[c] = chunks[c]
        heads[c] = load_int(chunks[c] + CHUNK_ROWS * width * 8)


@kernel("void(ro(boolean), ro(boolean), ro(boolean), ro(boolean), rw(boolean), rw(boolean))", keeps_interpreter=True)
def freeze(changed: Flags, pending: Flags, stored: Flags, gone: Flags, unwritten: Flags, known: Flags) -> None:
    """Of as many rows as there is room for: whether RocksDB lacks what is in them, and whether it has their keys."""
    for row in range(len(unwritten)):
        unwritten[row] = (changed[row] | pending[row]) & (not gone[row])
        known[row] = stored[row]


@kernel("int64(rw(boolean), rw(boolean), rw(boolean), ro(boolean))", keeps_interpreter=True)
def hand_over(changed: Flags, pending: Flags, stored: Flags, gone: Flags) -> int:
    """What changed is pending, and its keys count as stored. How many of these were not."""
    added = 0
    for row in range(len(changed)):
        is_pending = (changed[row] | pending[row]) & (not gone[row])
        added += is_pending & (not stored[row])
        changed[row] = False
        pending[row] = is_pending
        stored[row] |= is_pending
    return added


@kernel("void(rw(boolean), rw(boolean), boolean)", keeps_interpreter=True)
def take_back(changed: Flags, pending: Flags, is_written: bool) -> None:
    """What was pending is written, or else counts as changed."""
    for row in range(len(changed)):
        changed[row] |= pending[row] & (not is_written)
        pending[row] = False


@kernel("int64(ro(boolean), ro(boolean), int64)", keeps_interpreter=True)
def unstored(stored: Flags, gone: Flags, rows: int) -> int:
    """How many of the first rows are here, and not stored."""
    count = 0
    for row in range(rows):
        count += not (stored[row] | gone[row])
    return count
