"""What backends promise of a store with many tables: each is in every snapshot and behind every restore, whatever is beside it."""

from typing import Any

from cutwater.checkpoint.stored_tables import RestoredTables
from cutwater.flow.key_groups import key_group_range
from cutwater.state.backend import KeyedStateStore, StateBackend
from cutwater.testing.contract_checkpoints import Checkpoints, adopted, restore_others
from cutwater.testing.contract_stores import Numbered, numbered
from cutwater.testing.contract_tables import MAX_PARALLELISM, expect, opened

_TABLES = numbered(3)
_FREEZES = 8
_PARALLELISM = 2


def every_table_of_a_store_is_frozen_each_time(backend: StateBackend) -> None:
    """One without rows too, and none twice."""
    names = [name for one in _TABLES for name in one.frozen_as]
    with opened(backend) as store:
        tables = [(one, one.open(store)) for one in _TABLES]
        for number in range(_FREEZES):
            frozen = store.freeze()
            for table in frozen:
                table.release()
            found = [table.name for table in frozen]
            expect([name for name in names if name not in found], [], "tables that freeze leaves out")
            expect(sorted(found), sorted(names), "tables that are frozen")
            one, table = tables[number % len(tables)]
            one.write(table, [0])
            store.tend()


def many_tables_are_restored_at_another_parallelism_and_back(backend: StateBackend) -> None:
    written = Checkpoints()
    with opened(backend) as store:
        for one in _TABLES:
            one.write(one.open(store), _steps(one))
        stored = written.store(written.freeze(store))
    moved = Checkpoints()
    parts = []
    for subtask in range(_PARALLELISM):
        groups = key_group_range(subtask, _PARALLELISM, MAX_PARALLELISM)
        own = Checkpoints(subtask, moved.storage)
        with opened(backend, groups) as store:
            _restored(store, written.restored(stored, groups=groups))
            parts.append(own.store(own.freeze(store)))
    with opened(backend) as store:
        for one, table in _restored(store, moved.restored(*parts)):
            what = f"{one.name}, one of {len(_TABLES)} tables, restored at another parallelism and back"
            expect(one.kind.content(table), one.content_of(_steps(one)), what)


def _steps(one: Numbered) -> range:
    """Others for each of a kind; the first stays empty."""
    return range(one.number, 3 * one.number)


def _restored(store: KeyedStateStore, restored: RestoredTables) -> list[tuple[Numbered, Any]]:
    restore_others(store, restored, adopted(store, restored))
    return [(one, one.open(store)) for one in _TABLES]
