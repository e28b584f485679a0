"""Very many rows on their way into RocksDB: sorted in columns, and written as files of RocksDB past its write buffer."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.flow.batches import gathered
from cutwater.state.rocksdb_family import READ_BYTES, Entries, Family
from cutwater.state.rocksdb_keys import key_order, numbered, stored_keys
from cutwater.state.rocksdb_layout import READ_ROWS, Layout
from cutwater.state.row_codec import RowCodec

LEAST_SORTED_BYTES = 1 << 20
FEW_ROWS = 256
COPIED_ROWS = 64 * READ_ROWS
"""So many rows of another database become one file: RocksDB keeps something of each in memory until it is whole."""


def ingest_rows(family: Family, layout: Layout, batches: Iterable[pa.RecordBatch], sorted_bytes: int) -> int:
    """Rows of a table whose content is ``BY_KEY``, each key once; columns may come in another order. How many there were.

    As many as ``sorted_bytes`` are sorted at once and become a file. Others get the interpreter every few thousand rows.
    """
    codec = layout.codec()
    count = 0
    in_layout = (batch.select(layout.schema.names) for batch in batches)
    for rows in gathered(in_layout, max(sorted_bytes, LEAST_SORTED_BYTES)):
        family.ingest(_in_order(rows, layout, codec))
        count += rows.num_rows
    return count


def come_far_apart(batches: Iterable[pa.RecordBatch], namespace: str) -> tuple[bool, Iterator[pa.RecordBatch]]:
    """Whether rows of a pane or bucket are few in a batch, to judge by the first: gathered in memory, each few would be a batch of
    their own. And the batches."""
    rest = iter(batches)
    first = next(rest, None)
    if first is None:
        return False, rest
    of = len(np.unique(first.column(namespace).to_numpy()))
    return first.num_rows < FEW_ROWS * of, chain([first], rest)


def are_more_than(batches: Iterable[pa.RecordBatch], size: int) -> tuple[bool, Iterator[pa.RecordBatch]]:
    """Whether they have more than so many bytes: no batch is read behind the one that tells it. And the batches."""
    rest = iter(batches)
    read: list[pa.RecordBatch] = []
    for batch in rest:
        read.append(batch)
        size -= batch.nbytes
        if size < 0:
            break
    return size < 0, chain(read, rest)


class NumberedRows(NamedTuple):
    """Rows that are only added, and what their keys are made of: those of equal ones come in the order of their numbers."""

    keys: Sequence[Array]
    groups: "npt.NDArray[np.int32]"
    namespaces: "npt.NDArray[np.int64]"
    first: int
    """The number of the first."""
    values: pa.RecordBatch
    apart: int = 1
    """Each other number is so much more than the one before."""


def ingest_numbered(
    family: Family,
    layout: Layout,
    batches: Iterable[pa.RecordBatch],
    numbered_rows: Callable[[pa.RecordBatch], NumberedRows],
    sorted_bytes: int,
) -> None:
    """As many rows are sorted at once as in ``ingest_rows``."""
    codec = layout.codec()
    in_layout = (batch.select(layout.schema.names).cast(layout.schema) for batch in batches)
    for rows in gathered(in_layout, max(sorted_bytes, LEAST_SORTED_BYTES)):
        family.ingest(_numbered_in_order(numbered_rows(rows), codec))


def _numbered_in_order(rows: NumberedRows, codec: RowCodec) -> Iterator[Entries]:
    order = key_order(rows.keys, rows.groups, rows.namespaces)
    if order is None:
        order = np.arange(len(rows.groups))
    step = _step(rows.values)
    for start in range(0, len(order), step):
        some = order[start : start + step]
        keys = stored_keys([key.take(some) for key in rows.keys], rows.groups[some], rows.namespaces[some])
        numbers = (some * rows.apart + rows.first).tolist()
        yield numbered(keys, numbers), codec.encode(rows.values.take(some).columns, len(some))


def ingest_entries(family: Family, entries: Iterator[Entries]) -> int:
    """As another database has them, in the order of the keys. How many there were."""
    count = 0

    def one_file(first: Entries) -> Iterator[Entries]:
        nonlocal count
        written = 0
        for part in chain([first], entries):
            yield part
            written += len(part[0])
            if written >= COPIED_ROWS:
                break
        count += written

    for first in entries:
        family.ingest(one_file(first))
    return count


def _in_order(rows: pa.RecordBatch, layout: Layout, codec: RowCodec) -> Iterator[Entries]:
    width = len(layout.keys)
    order = key_order(rows.columns[:width], rows.columns[-1].to_numpy())
    step = _step(rows)
    for start in range(0, rows.num_rows, step):
        part = rows.slice(start, step) if order is None else rows.take(order[start : start + step])
        *columns, groups = part.columns
        keys = stored_keys(columns[:width], groups.to_numpy())
        yield keys, codec.encode(columns[width:], part.num_rows)


def _step(rows: pa.RecordBatch) -> int:
    """So many are encoded at once."""
    return max(1, min(READ_ROWS, READ_BYTES * rows.num_rows // max(rows.nbytes, 1)))
