"""The state of one operator in one subtask, in RocksDB."""

import os
from collections.abc import Sequence

import pyarrow as pa

from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.cache_share import CacheShare
from cutwater.state.local_folder import LocalFolder
from cutwater.state.rocksdb_aggregates import RocksDBAggregateTable
from cutwater.state.rocksdb_buckets import RocksDBBuckets
from cutwater.state.rocksdb_database import Database, Tuning
from cutwater.state.rocksdb_join import RocksDBJoin, RocksDBJoinSide
from cutwater.state.rocksdb_panes import RocksDBPanes
from cutwater.state.rocksdb_rows import RocksDBRowTable
from cutwater.state.spilled_batches import SpilledBatches
from cutwater.state.table_store import TableStore
from cutwater.state.tables import AggregateTable, BucketTable, Column, JoinSide, JoinTable, Merge, PaneTable, RowTable

Table = RocksDBAggregateTable | RocksDBPanes | RocksDBBuckets | RocksDBJoinSide | RocksDBRowTable


class RocksDBStore(TableStore[Table]):
    """Implements ``KeyedStateStore``."""

    def __init__(
        self, uid: str, key_groups: KeyGroupRange, max_parallelism: int, parent: str, cache: int, tuning: Tuning
    ) -> None:
        super().__init__(uid, key_groups, max_parallelism)
        self._share = CacheShare(cache)
        self._folder = LocalFolder(parent)
        self._database = Database(uid, os.path.join(self._folder.path, "db"), tuning)

    def aggregates(self, name: str, keys: pa.Schema, columns: Sequence[Column]) -> AggregateTable:
        self._check_new(name)
        family = self._database.family(name)
        table = RocksDBAggregateTable(self._uid, name, keys, columns, self._max_parallelism, family, self._share)
        self._add(table)
        return table

    def rows(self, name: str, keys: pa.Schema, value: pa.DataType) -> RowTable:
        self._check_new(name)
        family = self._database.family(name)
        table = RocksDBRowTable(self._uid, name, keys, value, self._max_parallelism, family, self._share)
        self._add(table)
        return table

    def panes(self, name: str, keys: pa.Schema, pane: str, columns: Sequence[tuple[Column, Merge]]) -> PaneTable:
        self._check_new(name)
        family = self._database.family(name)
        table = RocksDBPanes(self._uid, name, keys, pane, columns, self._max_parallelism, family, self._share)
        self._add(table)
        return table

    def buckets(self, name: str, schema: pa.Schema, keys: Sequence[str], bucket: str) -> BucketTable:
        self._check_new(name)
        family = self._database.family(name)
        table = RocksDBBuckets(name, schema, keys, bucket, self._max_parallelism, family, self._share)
        self._add(table)
        return table

    def join(self, name: str, left: JoinSide, right: JoinSide, bucket: str) -> JoinTable:
        names = [f"{name}.left", f"{name}.right"]
        self._check_new(*names)
        families = [self._database.family(side) for side in names]
        join = RocksDBJoin(name, (left, right), bucket, self._max_parallelism, self._share, families)
        for side in join.sides:
            self._add(side)
        return join

    def tend(self) -> None:
        for table in self._tables.values():
            if isinstance(table, RocksDBRowTable):
                table.tend()

    def _waiting(self, name: str) -> SpilledBatches:
        # An operator restores before it declares its tables: all of its state would be in memory at once.
        return SpilledBatches(os.path.join(self._folder.path, f"restored-{len(self._early)}"))

    def close(self) -> None:
        super().close()
        self._database.close()
        self._folder.close()
