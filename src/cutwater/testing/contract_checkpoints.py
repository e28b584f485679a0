"""What a job's checkpoint storage is to one store, over all of its lives, and how operators restore from it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cutwater.checkpoint.layout import JobLayout
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.stored_tables import RestoredTables
from cutwater.checkpoint.table_writer import TableWriter
from cutwater.flow.ids import Attempt, CheckpointId, SubtaskId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.backend import KeyedStateStore
from cutwater.state.frozen import FrozenTable
from cutwater.state.stored import StoredTable
from cutwater.testing.contract_tables import ALL_GROUPS

Stored = dict[str, StoredTable]


@dataclass(frozen=True, slots=True)
class Completed:
    """``written``: the steps that it holds."""

    id: CheckpointId
    stored: Stored
    written: list[int]


class Checkpoints:
    """Of one ``subtask``."""

    def __init__(self, subtask: int = 0, storage: MemoryStorage | None = None) -> None:
        self.storage = MemoryStorage(1 << 30) if storage is None else storage
        self._subtask = SubtaskId("v", subtask)
        self._attempt = 0
        self._id = 0
        self.begin_attempt(None)

    def begin_attempt(self, resumed: Completed | None) -> None:
        self._attempt += 1
        self._heard: Stored = {} if resumed is None else resumed.stored
        self._frozen: dict[CheckpointId, tuple[list[FrozenTable], Stored]] = {}
        files = JobLayout("contract").files_of(self._subtask, Attempt(self._attempt))
        self._writer = TableWriter(self.storage, files)

    def begin(self) -> CheckpointId:
        """Of one that this store is not frozen for."""
        self._id += 1
        return CheckpointId(self._id)

    def freeze(self, store: KeyedStateStore) -> CheckpointId:
        """To be stored later: meanwhile the loop writes, and may hear that an earlier one completed."""
        id = self.begin()
        self._frozen[id] = (store.freeze(id), self._heard)
        return id

    def confirm(self, store: KeyedStateStore, completed: Completed) -> None:
        self._heard = completed.stored
        store.confirm(completed.id)

    def store(self, id: CheckpointId) -> Stored:
        frozen, base = self._frozen.pop(id)
        stored: Stored = {}
        for table in frozen:
            stored[table.name], _ = self._writer.write(id, "u", table, base.get(table.name))
            table.release()
        return stored

    def give_up(self, id: CheckpointId) -> None:
        """What was frozen for it is not stored."""
        for table in self._frozen.pop(id)[0]:
            table.release()

    def restored(self, *parts: Stored, groups: KeyGroupRange = ALL_GROUPS) -> RestoredTables:
        """``parts``: of each subtask that stored some in this storage."""
        tables = [table for part in parts for table in part.values()]
        return RestoredTables((), tables, groups, storage=self.storage)


def adopted(store: KeyedStateStore, restored: RestoredTables) -> Collection[str]:
    """What the store says that it took over by itself: operators take it at its word."""
    return _names("adopt", store.adopt(restored), restored.tables())


def resumed(store: KeyedStateStore, checkpoint: CheckpointId, restored: RestoredTables) -> Collection[str]:
    return _names("resume", store.resume(checkpoint, restored), restored.tables())


def restore_others(store: KeyedStateStore, restored: RestoredTables, taken: Collection[str]) -> None:
    for name in restored.tables():
        if name not in taken:
            store.restore(name, restored.batches(name))


def _names(method: str, found: object, held: Sequence[str]) -> Collection[str]:
    if not isinstance(found, Collection) or any(name not in held for name in found):
        raise AssertionError(f"{method} gives {found!r} instead of names of tables that it took over, or ()")
    return found
