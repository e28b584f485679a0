"""A state that is stored as files of RocksDB, for whoever cannot go on with the files themselves."""

from collections.abc import Iterator

import pyarrow as pa

from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.rocksdb_database import read_family
from cutwater.state.rocksdb_family import Entries
from cutwater.state.rocksdb_keys import group_bounds
from cutwater.state.rocksdb_layout import READ_ROWS, Layout
from cutwater.state.stored import StoredTable


def stored_entries(folder: str, table: StoredTable, key_groups: KeyGroupRange) -> Iterator[Entries]:
    """Of the table whose files are in ``folder``; nothing but those groups is read."""
    return read_family(folder, table.state, *group_bounds(key_groups), READ_ROWS)


def stored_rows(folder: str, table: StoredTable, key_groups: KeyGroupRange) -> Iterator[pa.RecordBatch]:
    return Layout.from_json(table.details["layout"]).decoded(stored_entries(folder, table, key_groups))
