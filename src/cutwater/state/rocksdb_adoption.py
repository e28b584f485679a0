"""Which stored databases a store goes on with, and from which it copies."""

from collections.abc import Sequence

from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.stored import Form, StoredFile, StoredTable

StoredDatabase = tuple[StoredTable, ...]
"""The states that are in the same files; at least one."""


def stored_databases(tables: Sequence[StoredTable]) -> list[StoredDatabase]:
    """Empty if they cannot all be taken as they are: parts of a state may be rows, or in other columns than other parts."""
    layouts = {(table.state, str(table.details["layout"])) for table in tables if table.form is Form.ROCKSDB}
    if any(table.form is not Form.ROCKSDB for table in tables) or len(layouts) > len({state for state, _ in layouts}):
        return []
    by_files: dict[tuple[StoredFile, ...], StoredDatabase] = {}
    for table in tables:
        by_files[table.files] = (*by_files.get(table.files, ()), table)
    return list(by_files.values())


def with_base(databases: Sequence[StoredDatabase], own: KeyGroupRange) -> tuple[StoredDatabase, list[StoredDatabase]]:
    """The largest with no other key groups than the own ones, which can be gone on with (empty: there is none); the others."""
    whole = [database for database in databases if all(_is_within(own, table) for table in database)]
    base = max(whole, key=_size, default=())
    return base, [database for database in databases if database is not base]


def _is_within(own: KeyGroupRange, table: StoredTable) -> bool:
    is_empty = table.first_key_group > table.last_key_group
    return is_empty or (own.first <= table.first_key_group and table.last_key_group <= own.last)


def _size(database: StoredDatabase) -> int:
    return database[0].size
