"""Small record batches as few large ones: what a batch costs whatever its size is paid once for them. And large ones as several
small ones: what is made of each fits into the processor's caches, and into memory that was just let go of."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa


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
