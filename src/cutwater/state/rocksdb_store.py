"""The state of one operator in one subtask, in RocksDB."""

import os
import shutil
import sys
import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.cache_share import CacheShare
from cutwater.state.frozen import FrozenTable
from cutwater.state.local_folder import LocalFolder
from cutwater.state.rocksdb_adoption import stored_databases, with_base
from cutwater.state.rocksdb_aggregates import RocksDBAggregateTable
from cutwater.state.rocksdb_buckets import RocksDBBuckets
from cutwater.state.rocksdb_bulk import ingest_entries
from cutwater.state.rocksdb_cut import KEYS, LINEAGE, Gate, StoreCut
from cutwater.state.rocksdb_database import Database, Tuning
from cutwater.state.rocksdb_family import Family
from cutwater.state.rocksdb_frozen import FrozenFiles
from cutwater.state.rocksdb_join import RocksDBJoin, RocksDBJoinSide
from cutwater.state.rocksdb_layout import Layout
from cutwater.state.rocksdb_panes import RocksDBPanes
from cutwater.state.rocksdb_reading import stored_entries
from cutwater.state.rocksdb_rows import RocksDBRowTable
from cutwater.state.rocksdb_runs import EARLY, LATE
from cutwater.state.row_layers import RowForm
from cutwater.state.spilled_batches import SpilledBatches
from cutwater.state.stored import Form, StoredFile, StoredState, StoredTable
from cutwater.state.table_store import TableStore, never_declared
from cutwater.state.tables import (
    AggregateTable,
    BucketTable,
    Column,
    JoinSide,
    JoinTable,
    Merge,
    PaneTable,
    RowTable,
    See,
)

Json = Any
AppendedTable = RocksDBPanes | RocksDBBuckets | RocksDBJoinSide
Table = RocksDBAggregateTable | AppendedTable | RocksDBRowTable

APPENDED_AT_ONCE = 8192
"""Taking in so many rows and writing as many, and a quarter more, takes a fraction of 100 ms. While nothing is to be written rows
seem cheap, and the loop would bring eight times as many when a part is full, or a cut has let go of the gate."""
JOINED_AT_ONCE = 4096
"""Of a join: what is stored is looked for key by key."""
READ_AT_ONCE = 512
"""Of row functions: what is stored is looked for key by key, and each takes five times as long while a snapshot is read beside."""


def _rows_at_once(table: Table) -> int:
    match table:
        case RocksDBRowTable():
            return READ_AT_ONCE
        case RocksDBJoinSide():
            return JOINED_AT_ONCE
        case RocksDBAggregateTable():
            return sys.maxsize
        case _:
            return APPENDED_AT_ONCE


class RocksDBStore(TableStore[Table]):
    """Implements ``KeyedStateStore`` and ``WritesAlong``."""

    def __init__(
        self,
        uid: str,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        parent: str,
        cache: int,
        tuning: Tuning,
        *,
        incremental: bool,
    ) -> None:
        super().__init__(uid, key_groups, max_parallelism)
        self._share = CacheShare(cache)
        self._gate = Gate()
        self._incremental = incremental
        self._folder = LocalFolder(parent)
        self._tuning = tuning
        self._opened: Database | None = None
        self._joining = EARLY
        self._families: dict[str, Family] = {}
        self._resumed: dict[str, list[Json]] = {}
        """What is told of states that are in the database, but were not declared yet: of each part that they were stored in."""
        self._seen_by: dict[str, See] = {}
        """Who sees what is restored into tables that were not declared yet."""
        self._lineage = uuid.uuid4().hex
        self._cuts = 0

    def aggregates(self, name: str, keys: pa.Schema, columns: Sequence[Column]) -> AggregateTable:
        family = self._new_family(name)
        table = RocksDBAggregateTable(
            self._uid, name, keys, columns, self._max_parallelism, family, self._share, self._gate
        )
        self._add(table)
        return table

    def rows(self, name: str, keys: pa.Schema, value: pa.DataType, slot: str | None = None) -> RowTable:
        form = RowForm.of(self._uid, name, keys, value, self._max_parallelism, slot)
        table = RocksDBRowTable(form, self._new_family(name), self._share, self._gate)
        table.see = self._seen_by.pop(name, None)
        self._add(table)
        return table

    def show_restored(self, name: str, see: See) -> bool:
        """What was taken over as files does not come by."""
        if name in self._resumed:
            return False
        self._seen_by[name] = see
        return True

    def panes(self, name: str, keys: pa.Schema, pane: str, columns: Sequence[tuple[Column, Merge]]) -> PaneTable:
        family = self._new_family(name)
        table = RocksDBPanes(
            self._uid, name, keys, pane, columns, self._max_parallelism, family, self._share, self._gate
        )
        self._add(table)
        return table

    def buckets(self, name: str, schema: pa.Schema, keys: Sequence[str], bucket: str) -> BucketTable:
        family = self._new_family(name)
        table = RocksDBBuckets(name, schema, keys, bucket, self._max_parallelism, family, self._share, self._gate)
        self._add(table)
        return table

    def join(self, name: str, left: JoinSide, right: JoinSide, bucket: str) -> JoinTable:
        names = [f"{name}.left", f"{name}.right"]
        self._check_new(*names)
        families = [self._new_family(side) for side in names]
        join = RocksDBJoin(name, (left, right), bucket, self._max_parallelism, self._share, self._gate, families)
        for side in join.sides:
            self._add(side)
        return join

    def freeze(self, checkpoint: CheckpointId | None = None) -> list[FrozenTable]:
        if self._resumed:
            raise never_declared(self._uid, self._resumed)
        if not self._incremental or not self._tables:
            return super().freeze(checkpoint)
        # Here it fails the attempt, and the next one begins with another database; no checkpoint of this one would complete.
        self._database.check()
        self._database.drop_unclaimed()
        self._cuts += 1
        folder = os.path.join(self._folder.path, f"cut-{self._cuts}")
        cut = StoreCut(self._database, self._lineage, self._gate, folder)
        frozen: list[FrozenTable] = []
        for table in self._tables.values():
            cut.join()
            rows = table.freeze_into(cut)
            details = {**cut.details(), **table.details()}
            frozen.append(FrozenFiles(rows, table.layout, cut, self._families[table.name], self._key_groups, details))
        return frozen

    def resume(self, checkpoint: CheckpointId, state: StoredState) -> Collection[str]:
        """The files become the database: nothing is read before it is asked for."""
        tables = [table for table in state.stored if table.form is Form.ROCKSDB]
        if len({table.files for table in tables}) != 1:
            return ()
        self._fetch(state, tables[0].files, self._database_folder)
        self._take_over(tables)
        self._joining = LATE
        self._lineage = tables[0].details[LINEAGE]
        return tuple(self._resumed)

    def adopt(self, state: StoredState) -> Collection[str]:
        """If a stored database is wholly ours, its files become this one. Of others the own rows are copied as they are."""
        base, others = with_base(stored_databases(state.stored), self._key_groups)
        if base:
            self._fetch(state, base[0].files, self._database_folder)
            self._take_over(base)
        for number, tables in enumerate(others):
            folder = os.path.join(self._folder.path, f"adopted-{number}")
            self._fetch(state, tables[0].files, folder)
            for table in tables:
                entries = stored_entries(folder, table, self._key_groups)
                copied = ingest_entries(self._family(table.state), entries)
                self._take_over([replace(table, details=table.details | {KEYS: copied})])
            shutil.rmtree(folder)
        return tuple(self._resumed)

    def expect(self, keys: Sequence[Any]) -> None:
        for table in self._tables.values():
            if isinstance(table, RocksDBRowTable):
                table.expect(keys)

    def tend(self) -> None:
        for table in self._tables.values():
            if isinstance(table, RocksDBRowTable):
                table.tend()

    @property
    def rows_at_once(self) -> int:
        return min(map(_rows_at_once, self._tables.values()), default=sys.maxsize)

    def close(self) -> None:
        super().close()
        if self._opened is not None:
            self._opened.close()
        self._folder.close()

    @property
    def _database_folder(self) -> str:
        return os.path.join(self._folder.path, "db")

    @property
    def _database(self) -> Database:
        if self._opened is None:
            self._opened = Database(self._uid, self._database_folder, self._tuning, self._joining)
        return self._opened

    def _fetch(self, state: StoredState, files: Sequence[StoredFile], folder: str) -> None:
        os.mkdir(folder)
        for file in files:
            state.fetch(file, os.path.join(folder, file.name))

    def _take_over(self, tables: Sequence[StoredTable]) -> None:
        for table in tables:
            self._resumed.setdefault(table.state, []).append(table.details)

    def _new_family(self, name: str) -> Family:
        self._check_new(name)
        return self._family(name)

    def _family(self, name: str) -> Family:
        if name not in self._families:
            self._families[name] = self._database.family(name)
        return self._families[name]

    def _add(self, table: Table) -> None:
        details = self._resumed.pop(table.name, None)
        if details is None:
            super()._add(table)
            return
        stored, family = Layout.from_json(details[0]["layout"]), self._families[table.name]
        if stored == table.layout:
            table.resume(details)
        else:
            # Perhaps only in another order: what can be restored from a file of rows can be from here.
            waiting = SpilledBatches(os.path.join(self._folder.path, f"restored-{table.name}"))
            for batch in stored.batches(family.cut()):
                waiting.append(batch)
            self._database.renew(family, table.name)
            self._early[table.name] = waiting
        super()._add(table)
