"""``cw.Memory()``: all keyed state in the worker's memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from cutwater.errors import ConfigError
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.memory_aggregates import MemoryAggregateTable
from cutwater.state.memory_buckets import MemoryBuckets
from cutwater.state.memory_join import MemoryJoin, MemoryJoinSide
from cutwater.state.memory_panes import MemoryPanes
from cutwater.state.memory_rows import MemoryRowTable
from cutwater.state.table_store import TableStore
from cutwater.state.tables import AggregateTable, BucketTable, Column, JoinSide, JoinTable, Merge, PaneTable, RowTable

Table = MemoryAggregateTable | MemoryPanes | MemoryBuckets | MemoryJoinSide | MemoryRowTable


@dataclass(frozen=True, slots=True)
class Memory:
    """The setting. ``asynchronous=False`` writes the snapshot before the loop goes on: for comparison, not for use."""

    incremental: bool = False
    asynchronous: bool = True

    def __post_init__(self) -> None:
        for name in ("incremental", "asynchronous"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"Memory({name}={getattr(self, name)!r}): must be True or False.")
        if self.incremental:
            raise ConfigError("Memory(incremental=True): incremental snapshots are not supported yet; leave it out.")

    def open(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> "MemoryStore":
        return MemoryStore(uid, key_groups, max_parallelism)


class MemoryStore(TableStore[Table]):
    """Implements ``KeyedStateStore``."""

    def aggregates(self, name: str, keys: pa.Schema, columns: Sequence[Column]) -> AggregateTable:
        table = MemoryAggregateTable(self._uid, name, keys, columns, self._max_parallelism)
        self._add(table)
        return table

    def rows(self, name: str, keys: pa.Schema, value: pa.DataType) -> RowTable:
        table = MemoryRowTable(self._uid, name, keys, value, self._max_parallelism)
        self._add(table)
        return table

    def panes(self, name: str, keys: pa.Schema, pane: str, columns: Sequence[tuple[Column, Merge]]) -> PaneTable:
        table = MemoryPanes(self._uid, name, keys, pane, columns, self._max_parallelism)
        self._add(table)
        return table

    def buckets(self, name: str, schema: pa.Schema, keys: Sequence[str], bucket: str) -> BucketTable:
        table = MemoryBuckets(name, schema, keys, bucket, self._max_parallelism)
        self._add(table)
        return table

    def join(self, name: str, left: JoinSide, right: JoinSide, bucket: str) -> JoinTable:
        join = MemoryJoin((left, right), bucket, self._max_parallelism)
        for side, word in enumerate(("left", "right")):
            self._add(MemoryJoinSide(join, side, f"{name}.{word}"))
        return join

    def tend(self) -> None:
        for table in self._tables.values():
            if isinstance(table, MemoryRowTable):
                table.tend()
