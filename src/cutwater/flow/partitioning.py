"""Dividing a batch among the subtasks that its rows go to."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.compiled import kernel

Targets = npt.NDArray[np.int32]


def partition(batch: pa.RecordBatch, targets: Targets, n: int) -> list[pa.RecordBatch | None]:
    """For each of ``n`` targets its rows, in their order, or None. Slices of one reordered batch: copied once."""
    parts: list[pa.RecordBatch | None] = [None] * n
    if batch.num_rows == 0:
        return parts
    order, starts = side_by_side(targets, n)
    counts = np.diff(starts)
    filled = np.flatnonzero(counts)
    if len(filled) == 1:
        parts[int(filled[0])] = batch
        return parts
    ordered = batch.take(order)
    for target in filled:
        parts[int(target)] = ordered.slice(int(starts[target]), int(counts[target]))
    return parts


def side_by_side(targets: Targets, n: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The rows of each of ``n`` targets, in their order, one target behind the other. Of target i: ``starts[i]`` to
    ``starts[i + 1]``."""
    starts = np.zeros(n + 1, np.int64)
    order = np.empty(len(targets), np.int32)
    if not _counting_sort(np.ascontiguousarray(targets, np.int32), starts, order):
        raise ValueError(f"a target is outside 0..{n - 1}")
    return order, starts


def by_number(batch: pa.RecordBatch, numbers: npt.NDArray[np.int64]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each number, in their order; the smallest number first."""
    if batch.num_rows == 0:
        return
    if (numbers == numbers[0]).all():
        yield int(numbers[0]), batch
        return
    found, which = np.unique(numbers, return_inverse=True)
    for number, part in zip(found.tolist(), partition(batch, which.astype(np.int32), len(found)), strict=True):
        assert part is not None
        yield number, part


@kernel("int64(ro(int32), rw(int64), rw(int32))")
def _counting_sort(targets: Targets, starts: npt.NDArray[np.int64], order: npt.NDArray[np.int32]) -> int:
    n = len(starts) - 1
    for i in range(len(targets)):
        if targets[i] < 0 or targets[i] >= n:
            return 0
        starts[targets[i] + 1] += 1
    for t in range(n):
        starts[t + 1] += starts[t]
    next_free = starts[:-1].copy()
    for i in range(len(targets)):
        t = targets[i]
        order[next_free[t]] = i
        next_free[t] += 1
    return 1
