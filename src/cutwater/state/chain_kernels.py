"""Rows of equal keys as chains: of each key the newest row, of each row the one before it; -1 ends a chain."""

import numpy as np
import numpy.typing as npt

from cutwater.flow.compiled import kernel

Ids = npt.NDArray[np.int32]
Links = npt.NDArray[np.int64]


@kernel("void(ro(int32), int64, rw(int64), rw(int64))")
def append(ids: Ids, first_row: int, newest: Links, before: Links) -> None:
    """Rows ``first_row`` and on, of the keys ``ids``."""
    for i in range(len(ids)):
        key = ids[i]
        before[first_row + i] = newest[key]
        newest[key] = first_row + i


@kernel("int64(ro(int32), ro(int64), ro(int64), int64, rw(int64))")
def count(ids: Ids, newest: Links, before: Links, most: int, total: Links) -> int:
    """How many rows the keys ``ids`` have in ``total``. Of how many ids: all, or the first ones that have no more than ``most``."""
    total[0] = 0
    for i in range(len(ids)):
        row = newest[ids[i]]
        while row >= 0:
            if total[0] == most:
                return i
            total[0] += 1
            row = before[row]
    return len(ids)


@kernel("void(ro(int32), ro(int64), ro(int64), rw(int64), rw(int64))")
def expand(ids: Ids, newest: Links, before: Links, asked: Links, rows: Links) -> None:
    """For each of ``ids`` its position and its rows, the oldest first."""
    at = 0
    for i in range(len(ids)):
        length = 0
        row = newest[ids[i]]
        while row >= 0:
            length += 1
            row = before[row]
        row = newest[ids[i]]
        for back in range(length):
            asked[at + back] = i
            rows[at + length - 1 - back] = row
            row = before[row]
        at += length
