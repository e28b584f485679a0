"""Very many rows on their way into RocksDB: sorted in columns, and written as files of RocksDB past its write buffer."""

from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa

from cutwater.flow.batches import gathered
from cutwater.state.rocksdb_family import READ_BYTES, Entries, Family
from cutwater.state.rocksdb_keys import key_order, stored_keys
from cutwater.state.rocksdb_layout import READ_ROWS, Layout
from cutwater.state.row_codec import RowCodec

LEAST_SORTED_BYTES = 1 << 20
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
    step = max(1, min(READ_ROWS, READ_BYTES * rows.num_rows // max(rows.nbytes, 1)))
    for start in range(0, rows.num_rows, step):
        part = rows.slice(start, step) if order is None else rows.take(order[start : start + step])
        *columns, groups = part.columns
        keys = stored_keys(columns[:width], groups.to_numpy())
        yield keys, codec.encode(columns[width:], part.num_rows)
