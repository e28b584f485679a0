"""A store whose checkpoints are stored one after the other, and many keys to put into it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from cutwater.checkpoint.layout import JobLayout
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.stored_tables import RestoredTables
from cutwater.checkpoint.table_writer import TableWriter
from cutwater.flow.ids import Attempt, CheckpointId, SubtaskId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.frozen import FrozenTable
from cutwater.state.memory import IncrementalMemoryStore
from cutwater.state.stored import StoredTable
from cutwater.state.tables import Column, Merge, Update

GROUPS = KeyGroupRange(0, 127)


def opened() -> IncrementalMemoryStore:
    return IncrementalMemoryStore("u", GROUPS, 128)


class Job:
    """Stores the checkpoints of one store."""

    def __init__(self, store: Any, storage: Any = None) -> None:
        self.store = store
        self.storage = storage if storage is not None else MemoryStorage(1 << 30)
        self.writer = TableWriter(self.storage, JobLayout("job").files_of(SubtaskId("v", 0), Attempt(1)))
        self.base: StoredTable | None = None
        self.id = 0

    def checkpoint(
        self, *, completes: bool = True, seen_through: Callable[[FrozenTable], FrozenTable] = lambda frozen: frozen
    ) -> StoredTable:
        self.id += 1
        [frozen] = map(seen_through, self.store.freeze(CheckpointId(self.id)))
        stored, _ = self.writer.write(CheckpointId(self.id), "u", frozen, self.base)
        frozen.release()
        if completes:
            self.base = stored
            self.store.confirm(CheckpointId(self.id))
        return stored

    def rows(self, stored: StoredTable, columns: tuple[str, ...] = ("k", "n")) -> dict[Any, Any]:
        key, value = columns
        batches = self.restored(stored).batches(stored.state)
        found = [(row[key], row[value]) for batch in batches for row in batch.to_pylist()]
        assert len(dict(found)) == len(found)
        return dict(found)

    def restored(self, stored: StoredTable) -> RestoredTables:
        return RestoredTables((), [stored], GROUPS, storage=self.storage)


class ManyKeys:
    """Aggregates of about 100 bytes a key."""

    keys = pa.schema([("k", pa.string())])
    columns = (Column("n", pa.int64(), nullable=False), *(Column(f"v{i}", pa.float64()) for i in range(10)))

    def __init__(self, store: Any) -> None:
        self.table = store.aggregates("n", self.keys, self.columns)

    def write(self, numbers: Any) -> None:
        for start in range(0, len(numbers), 100_000):
            part = numbers[start : start + 100_000]
            values = pa.array(np.random.default_rng(start).random(len(part)))
            sums = [Update(i + 1, Merge.ADD, values) for i in range(10)]
            self.table.update(self.table.locate(self._batch(part)), [Update(0, Merge.COUNT), *sums])

    def counts(self, numbers: Any) -> Any:
        return self.table.read(self.table.locate(self._batch(numbers)).rows)[0].to_numpy()

    def _batch(self, numbers: Any) -> pa.RecordBatch:
        return pa.record_batch([pa.array(np.char.add("key ", numbers.astype(str)))], schema=self.keys)
