"""Rows of buckets as entries of RocksDB.

Where a key group has many rows of a bucket at a time they are stored as they are in memory, as a batch. To write and read a batch
of few takes longer than to write and read the rows: these are stored one by one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.state.rocksdb_family import Entries
from cutwater.state.rocksdb_keys import stored_keys
from cutwater.state.rocksdb_layout import message_of, numbers_of_batches, numbers_of_rows, plain_rows
from cutwater.state.rocksdb_parts import STEP_ROWS, Part
from cutwater.state.row_codec import RowCodec

FEW_ROWS = 16
"""Of fewer rows no batch is made: it takes as long as so many of them."""
STEP_BATCHES = 256
"""So many batches are made in a step; or ``STEP_ROWS`` single rows."""

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Cells:
    """Rows in the order in which RocksDB has them, those of one key group and bucket as they came. Such a cell begins at each of
    ``starts``."""

    rows: pa.RecordBatch
    buckets: Counts
    groups: npt.NDArray[np.int32]
    starts: Counts
    counts: Counts

    @staticmethod
    def of(batch: pa.RecordBatch) -> "_Cells":
        *columns, of_buckets, of_groups = batch.columns
        buckets, groups = of_buckets.to_numpy(), of_groups.to_numpy()
        order = np.lexsort((buckets, groups))
        rows = batch.select(batch.schema.names[: len(columns)]).take(order)
        buckets, groups = buckets[order], groups[order]
        starts = np.flatnonzero(np.append(True, (buckets[1:] != buckets[:-1]) | (groups[1:] != groups[:-1])))
        return _Cells(rows, buckets, groups, starts, np.diff(np.append(starts, len(order))))

    def keys(self, rows: "npt.NDArray[Any]", numbers: "npt.NDArray[Any]") -> list[bytes]:
        return stored_keys([], self.groups[rows], self.buckets[rows], numbers)


def entries_of(batch: pa.RecordBatch, codec: RowCodec, part: Part[Any]) -> Iterator[tuple[int, Entries]]:
    """Of rows with their bucket and key group behind them, one at least. How many, and what is to be written, step by step; what
    comes later of a bucket has a higher number."""
    cells = _Cells.of(batch)
    part.note_each(0, cells.buckets[cells.starts], cells.groups[cells.starts])
    yield from _single_rows(cells, codec, part)
    yield from _batches(cells, part)


def _single_rows(cells: _Cells, codec: RowCodec, part: Part[Any]) -> Iterator[tuple[int, Entries]]:
    few = np.flatnonzero(np.repeat(cells.counts < FEW_ROWS, cells.counts))
    for start in range(0, len(few), STEP_ROWS):
        some = few[start : start + STEP_ROWS]
        numbers = numbers_of_rows(part.take_numbers(2 * len(some)))
        values = codec.encode(cells.rows.take(some).columns, len(some))
        yield len(some), (cells.keys(some, numbers), values)


def _batches(cells: _Cells, part: Part[Any]) -> Iterator[tuple[int, Entries]]:
    rows = plain_rows(cells.rows)
    many = cells.counts >= FEW_ROWS
    starts, counts = cells.starts[many], cells.counts[many]
    for at in range(0, len(starts), STEP_BATCHES):
        first, count = starts[at : at + STEP_BATCHES], counts[at : at + STEP_BATCHES]
        numbers = numbers_of_batches(part.take_numbers(2 * len(first)))
        messages = [message_of(rows.slice(*each)) for each in zip(first.tolist(), count.tolist(), strict=True)]
        yield int(count.sum()), (cells.keys(first, numbers), messages)
