"""Small record batches as few large ones: what a batch costs whatever its size is paid once for them. And large ones as several
small ones: what is made of each fits into the processor's caches, and into memory that was just let go of. And a few rows of a
large one, or of many, without the others."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.partitioning import side_by_side

PINNED = 4
"""What is kept may keep so many times its bytes in memory: for less nothing is copied."""

FEW_ROWS = 256
"""So many are copied sooner than it is known how many bytes they have."""


def gathered(batches: Iterable[pa.RecordBatch], least_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at least so many bytes, but for the last one and where the schema changes. None is empty."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if waiting and (size >= least_bytes or batch.schema != waiting[0].schema):
            yield joined(waiting)
            waiting, size = [], 0
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
    if waiting:
        yield joined(waiting)


def pieces(batch: pa.RecordBatch, most_rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, batch.num_rows, most_rows):
        yield batch.slice(start, most_rows)


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)  # type: ignore[attr-defined]  # the stubs lack it


def taken(batches: Sequence[pa.RecordBatch], rows: npt.NDArray[np.integer]) -> pa.RecordBatch:
    """Those rows of all batches, one behind the other, in this order; one at least. Arrow would copy all of them first."""
    ends = np.cumsum([batch.num_rows for batch in batches])
    order, starts = side_by_side(np.searchsorted(ends, rows, side="right").astype(np.int32), len(batches))
    rows = rows[order]
    parts: list[pa.RecordBatch] = []
    for at in np.flatnonzero(np.diff(starts)).tolist():
        batch = batches[at]
        parts.append(batch.take(rows[starts[at] : starts[at + 1]] - (ends[at] - batch.num_rows)))
    if len(parts) == 1:
        return parts[0]
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return joined(parts).take(back)


def detached(part: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows, to be kept for long. A copy if they are few, or a small part of what they are a slice of: all of that
    stays in memory as long as they do."""
    if part.num_rows > FEW_ROWS and part.get_total_buffer_size() <= PINNED * part.nbytes:
        return part
    copy: pa.RecordBatch = pa.concat_batches([part])  # type: ignore[attr-defined]  # the stubs lack it
    return copy
