"""A state that is stored as files of RocksDB, for whoever cannot go on with the files themselves."""

from collections.abc import Iterator

import pyarrow as pa

from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.rocksdb_database import read_family
from cutwater.state.rocksdb_family import Entry
from cutwater.state.rocksdb_keys import group_bounds
from cutwater.state.rocksdb_layout import Layout
from cutwater.state.stored import StoredTable


def stored_entries(folder: str, table: StoredTable, key_groups: KeyGroupRange) -> Iterator[Entry]:
    """Of the table whose files are in ``folder``; nothing but those groups is read."""
    return read_family(folder, table.state, *group_bounds(key_groups))


def stored_rows(folder: str, table: StoredTable, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
    yield from Layout.from_json(table.details["layout"]).batches(stored_entries(folder, table, key_groups))
