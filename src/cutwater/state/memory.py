"""``cw.Memory()``: all keyed state in the worker's memory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cutwater.errors import ConfigError, RestoreError
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.frozen import KEY_GROUP_COLUMN, FrozenTable
from cutwater.state.memory_aggregates import MemoryAggregateTable
from cutwater.state.memory_rows import MemoryRowTable
from cutwater.state.tables import AggregateTable, Column, RowTable


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


class MemoryStore:
    """Implements ``KeyedStateStore``."""

    def __init__(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> None:
        self._uid = uid
        self._key_groups = key_groups
        self._max_parallelism = max_parallelism
        self._tables: dict[str, MemoryAggregateTable | MemoryRowTable] = {}
        self._early: dict[str, list[pa.RecordBatch]] = {}
        """Restored before the table was created."""

    def aggregates(self, name: str, keys: pa.Schema, columns: Sequence[Column]) -> AggregateTable:
        table = MemoryAggregateTable(self._uid, name, keys, columns, self._max_parallelism)
        self._add(name, table)
        return table

    def rows(self, name: str, keys: pa.Schema, value: pa.DataType) -> RowTable:
        table = MemoryRowTable(self._uid, name, keys, value, self._max_parallelism)
        self._add(name, table)
        return table

    def drop(self, name: str) -> None:
        self._tables.pop(name, None)

    def freeze(self) -> list[FrozenTable]:
        if self._early:
            raise RestoreError(f"{self._uid}: restored state {', '.join(sorted(self._early))} was never declared.")
        return [table.freeze() for table in self._tables.values()]

    def restore(self, name: str, batches: Iterable[pa.RecordBatch]) -> None:
        table = self._tables.get(name)
        for batch in batches:
            own = self._own(batch)
            if table is None:
                self._early.setdefault(name, []).append(own)
            else:
                self._restore_into(table, own)

    def tend(self) -> None:
        for table in self._tables.values():
            if isinstance(table, MemoryRowTable):
                table.tend()

    def close(self) -> None:
        self._tables.clear()
        self._early.clear()

    def _add(self, name: str, table: MemoryAggregateTable | MemoryRowTable) -> None:
        if name in self._tables:
            raise ConfigError(f"{self._uid}: the state {name!r} is declared twice.")
        self._tables[name] = table
        for batch in self._early.pop(name, []):
            self._restore_into(table, batch)

    def _own(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        groups = batch.column(KEY_GROUP_COLUMN).to_numpy()
        mine = (groups >= self._key_groups.first) & (groups <= self._key_groups.last)
        return batch if mine.all() else batch.filter(mine)

    def _restore_into(self, table: MemoryAggregateTable | MemoryRowTable, batch: pa.RecordBatch) -> None:
        expected = table.stored_schema
        for field in expected:
            at = batch.schema.get_field_index(field.name)
            if at < 0 or batch.schema.field(at).type != field.type:
                found = "nothing" if at < 0 else str(batch.schema.field(at).type)
                raise RestoreError(
                    f"{self._uid}: state {table.name!r}, column {field.name!r}: the program declares {field.type}, "
                    f"the checkpoint holds {found}. Restore with the old program, or give the state another name."
                )
        table.restore([batch])
