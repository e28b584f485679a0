"""``cw.Memory()``: all keyed state in the worker's memory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from cutwater.errors import ConfigError, RestoreError
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.expiry import without_expiry
from cutwater.state.frozen import KEY_GROUP_COLUMN, FrozenTable
from cutwater.state.memory_aggregates import MemoryAggregateTable
from cutwater.state.memory_buckets import MemoryBuckets
from cutwater.state.memory_join import MemoryJoin, MemoryJoinSide
from cutwater.state.memory_panes import MemoryPanes
from cutwater.state.memory_rows import MemoryRowTable
from cutwater.state.tables import AggregateTable, BucketTable, Column, JoinSide, JoinTable, Merge, PaneTable, RowTable

Table = MemoryAggregateTable | MemoryPanes | MemoryBuckets | MemoryJoinSide | MemoryRowTable

_BEGIN_ANEW = (
    "or give the state another name (or its operator another uid) and drop this one with allow_non_restored_state=True."
)


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
        self._tables: dict[str, Table] = {}
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

    def panes(self, name: str, keys: pa.Schema, pane: str, columns: Sequence[tuple[Column, Merge]]) -> PaneTable:
        table = MemoryPanes(self._uid, name, keys, pane, columns, self._max_parallelism)
        self._add(name, table)
        return table

    def buckets(self, name: str, schema: pa.Schema, keys: Sequence[str], bucket: str) -> BucketTable:
        table = MemoryBuckets(name, schema, keys, bucket, self._max_parallelism)
        self._add(name, table)
        return table

    def join(self, name: str, left: JoinSide, right: JoinSide, bucket: str) -> JoinTable:
        join = MemoryJoin((left, right), bucket, self._max_parallelism)
        for side, word in enumerate(("left", "right")):
            self._add(f"{name}.{word}", MemoryJoinSide(join, side, f"{name}.{word}"))
        return join

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

    def _add(self, name: str, table: Table) -> None:
        if name in self._tables:
            raise ConfigError(f"{self._uid}: the state {name!r} is declared twice.")
        self._tables[name] = table
        for batch in self._early.pop(name, []):
            self._restore_into(table, batch)

    def _own(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        groups = batch.column(KEY_GROUP_COLUMN).to_numpy()
        mine = (groups >= self._key_groups.first) & (groups <= self._key_groups.last)
        return batch if mine.all() else batch.filter(mine)

    def _restore_into(self, table: Table, batch: pa.RecordBatch) -> None:
        # Other keys would be merged, or the same in another order be looked for in other key groups.
        own = {name for name in table.stored_schema.names if name not in table.key_columns}
        held = [name for name in batch.schema.names if name not in own]
        if held != list(table.key_columns):
            raise RestoreError(
                f"{self._uid}: state {table.name!r}: the program keys it by {', '.join(table.key_columns)}, the checkpoint "
                f"holds it by {', '.join(held)}. Write key_by as it was, {_BEGIN_ANEW}"
            )
        for field in table.stored_schema:
            at = batch.schema.get_field_index(field.name)
            found = batch.schema.field(at).type if at >= 0 else None
            if found != field.type:
                raise RestoreError(f"{self._uid}: state {table.name!r}{_difference(field.name, field.type, found)}")
        table.restore([batch])


def _difference(column: str, declared: pa.DataType, held: pa.DataType | None) -> str:
    """In the words of who declared it: how a ttl is stored is nothing that they wrote."""
    lasting, lasted = without_expiry(declared), None if held is None else without_expiry(held)
    with_ttl, had_ttl = lasting is not None, lasted is not None
    program = lasting if with_ttl else declared
    checkpoint = "nothing" if held is None else lasted if had_ttl else held
    if held is None or with_ttl == had_ttl:
        return (
            f", column {column!r}: the program declares {program}, the checkpoint holds {checkpoint}. "
            f"Restore with the old program, {_BEGIN_ANEW}"
        )
    types = ("it", "it") if program == checkpoint else (program, checkpoint)
    ttls = ("with a ttl", "without one") if with_ttl else ("without a ttl", "with one")
    return (
        f": the program declares {types[0]} {ttls[0]}, the checkpoint holds {types[1]} {ttls[1]}. "
        f"Declare it as it was, {_BEGIN_ANEW}"
    )
