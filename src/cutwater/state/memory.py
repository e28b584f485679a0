"""``cw.Memory()``: all keyed state in the worker's memory."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cutwater.arguments import takes_no_others
from cutwater.errors import ConfigError
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.frozen import FrozenTable
from cutwater.state.memory_aggregates import MemoryAggregateTable
from cutwater.state.memory_buckets import MemoryBuckets
from cutwater.state.memory_increments import Increments, TrackedTable
from cutwater.state.memory_join import MemoryJoin, MemoryJoinSide
from cutwater.state.memory_panes import MemoryPanes
from cutwater.state.memory_rows import MemoryRowTable
from cutwater.state.row_layers import RowForm
from cutwater.state.stored import StoredState
from cutwater.state.table_store import TableStore
from cutwater.state.tables import AggregateTable, BucketTable, Column, JoinSide, JoinTable, Merge, PaneTable, RowTable
from cutwater.state.tracked_aggregates import TrackedAggregateTable
from cutwater.state.tracked_panes import TrackedPanes
from cutwater.state.tracked_rows import TrackedRowTable

Table = MemoryAggregateTable | MemoryPanes | MemoryBuckets | MemoryJoinSide | MemoryRowTable


@takes_no_others
@dataclass(frozen=True, slots=True)
class Memory:
    """The setting. With ``incremental`` a checkpoint stores what changed since the last one, and all from time to time.
    ``asynchronous=False`` writes the snapshot before the loop goes on: for comparison, not for use."""

    incremental: bool = False
    asynchronous: bool = True

    def __post_init__(self) -> None:
        for name in ("incremental", "asynchronous"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"Memory({name}={getattr(self, name)!r}): must be True or False.")

    def open(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> "MemoryStore":
        kind = IncrementalMemoryStore if self.incremental else MemoryStore
        return kind(uid, key_groups, max_parallelism)


class MemoryStore(TableStore[Table]):
    """Implements ``KeyedStateStore``."""

    _aggregates: type[MemoryAggregateTable] = MemoryAggregateTable
    _rows: type[MemoryRowTable] = MemoryRowTable
    _panes: type[MemoryPanes] = MemoryPanes

    def aggregates(self, name: str, keys: pa.Schema, columns: Sequence[Column]) -> AggregateTable:
        table = self._aggregates(self._uid, name, keys, columns, self._max_parallelism)
        self._add(table)
        return table

    def rows(self, name: str, keys: pa.Schema, value: pa.DataType, slot: str | None = None) -> RowTable:
        table = self._rows(RowForm.of(self._uid, name, keys, value, self._max_parallelism, slot))
        self._add(table)
        return table

    def panes(self, name: str, keys: pa.Schema, pane: str, columns: Sequence[tuple[Column, Merge]]) -> PaneTable:
        table = self._panes(self._uid, name, keys, pane, columns, self._max_parallelism)
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

    def expect(self, keys: Sequence[Any]) -> None:
        for table in self._tables.values():
            if isinstance(table, MemoryRowTable):
                table.expect(keys)

    def tend(self) -> None:
        for table in self._tables.values():
            if isinstance(table, MemoryRowTable):
                table.tend()


class IncrementalMemoryStore(MemoryStore):
    """Its tables know what changed. Those of appended rows always do."""

    _aggregates = TrackedAggregateTable
    _rows = TrackedRowTable
    _panes = TrackedPanes

    def __init__(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> None:
        super().__init__(uid, key_groups, max_parallelism)
        self._increments = Increments()

    def freeze(self, checkpoint: CheckpointId | None = None) -> list[FrozenTable]:
        frozen = super().freeze(checkpoint)
        return frozen if checkpoint is None else self._increments.freeze(checkpoint, self._tracked, frozen)

    def confirm(self, checkpoint: CheckpointId) -> None:
        self._increments.confirm(checkpoint, self._tracked)

    def abort(self, checkpoint: CheckpointId) -> None:
        self._increments.abort(checkpoint)

    def resume(self, checkpoint: CheckpointId, state: StoredState) -> Collection[str]:
        self._increments.resume(checkpoint)
        return ()

    @property
    def _tracked(self) -> Mapping[str, TrackedTable]:
        return self._tables  # type: ignore[return-value]  # all that this class makes are
