"""Very many rows on their way into RocksDB: sorted in columns, and written as files of RocksDB past its write buffer."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.flow.batches import pieces
from cutwater.state.rocksdb_family import READ_BYTES, Entries, Family
from cutwater.state.rocksdb_keys import KeyBytes
from cutwater.state.rocksdb_layout import READ_ROWS, Layout

LEAST_SORTED_BYTES = 1 << 20
OBJECT_BYTES = 64
"""Of each value beside its bytes, until they are sorted and written."""
FEW_ROWS = 256
COPIED_ROWS = 64 * READ_ROWS
"""So many rows of another database become one file: RocksDB keeps something of each in memory until it is whole."""


def ingest_rows(family: Family, layout: Layout, batches: Iterable[pa.RecordBatch], sorted_bytes: int) -> int:
    """Rows of a table whose content is ``BY_KEY``, each key once; columns may come in another order. How many there were.

    As many as ``sorted_bytes`` are sorted at once and become a file. Others get the interpreter every few thousand rows.
    """
    width = len(layout.keys)

    def bulk_rows(rows: pa.RecordBatch) -> BulkRows:
        *columns, groups = rows.columns
        return BulkRows(columns[:width], groups.to_numpy(), None, None, columns[width:])

    return ingest_many(
        family, layout, (batch.select(layout.schema.names) for batch in batches), bulk_rows, sorted_bytes
    )


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


class BulkRows(NamedTuple):
    """What keys and values are made of."""

    keys: Sequence[Array]
    groups: "npt.NDArray[np.int32]"
    namespaces: "npt.NDArray[np.int64] | None"
    numbers: "npt.NDArray[np.int64] | None"
    """Of rows that are only added: those of equal keys come in their order. They ascend."""
    values: Sequence[Array]


def ingest_many(
    family: Family,
    layout: Layout,
    batches: Iterable[pa.RecordBatch],
    bulk_rows: Callable[[pa.RecordBatch], BulkRows],
    sorted_bytes: int,
) -> int:
    """As ``ingest_rows``, of columns as the layout has them."""
    codec, most = layout.codec(), max(sorted_bytes, LEAST_SORTED_BYTES)
    keys: list[KeyBytes] = []
    values: list[bytes] = []
    count = size = 0
    for batch in batches:
        for rows in pieces(batch, _step(batch)):
            of = bulk_rows(rows)
            keys.append(KeyBytes.of(of.keys, of.groups, of.namespaces, of.numbers))
            values += codec.encode(of.values, rows.num_rows)
            size += rows.nbytes + OBJECT_BYTES * rows.num_rows
            if size >= most:
                count += len(values)
                family.ingest(_in_order(KeyBytes.joined(keys), values))
                keys, values, size = [], [], 0
    if values:
        count += len(values)
        family.ingest(_in_order(KeyBytes.joined(keys), values))
    return count


def _in_order(keys: KeyBytes, values: Sequence[bytes]) -> Iterator[Entries]:
    order, apart = keys.order(), keys.apart()
    for start in range(0, len(values), READ_ROWS):
        part = slice(start, start + READ_ROWS)
        if order is None:
            yield apart[part], values[part]
        else:
            some = order[part].tolist()
            yield [apart[i] for i in some], [values[i] for i in some]


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


def _step(rows: pa.RecordBatch) -> int:
    """So many are encoded at once."""
    return max(1, min(READ_ROWS, READ_BYTES * rows.num_rows // max(rows.nbytes, 1)))
