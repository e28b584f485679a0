"""What a backend with ``incremental`` promises beyond the others: what it stores bit by bit is all there when it is read."""

import random
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain
from typing import Any

from cutwater.checkpoint.layout import JobLayout
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.stored_tables import RestoredTables
from cutwater.checkpoint.table_writer import TableWriter
from cutwater.flow.ids import Attempt, CheckpointId, SubtaskId
from cutwater.flow.key_groups import KeyGroupRange, key_group_range
from cutwater.state.backend import KeyedStateStore, StateBackend
from cutwater.state.frozen import FrozenTable
from cutwater.state.memory import Memory
from cutwater.state.stored import StoredTable
from cutwater.testing.contract_tables import ALL_GROUPS, KINDS, MAX_PARALLELISM, Kind, expect, opened

STEPS = 24

Stored = dict[str, StoredTable]


@dataclass(frozen=True, slots=True)
class _Completed:
    """``written``: the steps that it holds."""

    id: CheckpointId
    stored: Stored
    written: list[int]


class _Checkpoints:
    """What a job's checkpoint storage is to one store, over all of its lives."""

    def __init__(self) -> None:
        self.storage = MemoryStorage(1 << 30)
        self._attempt = 0
        self._id = 0
        self.begin_attempt(None)

    def begin_attempt(self, resumed: _Completed | None) -> None:
        self._attempt += 1
        self._heard: Stored = {} if resumed is None else resumed.stored
        self._frozen: dict[CheckpointId, tuple[list[FrozenTable], Stored]] = {}
        files = JobLayout("contract").files_of(SubtaskId("v", 0), Attempt(self._attempt))
        self._writer = TableWriter(self.storage, files)

    def freeze(self, store: KeyedStateStore) -> CheckpointId:
        """To be stored later: meanwhile the loop writes, and may hear that an earlier one completed."""
        self._id += 1
        id = CheckpointId(self._id)
        self._frozen[id] = (store.freeze(id), self._heard)
        return id

    def confirm(self, store: KeyedStateStore, completed: _Completed) -> None:
        self._heard = completed.stored
        store.confirm(completed.id)

    def store(self, id: CheckpointId) -> Stored:
        frozen, base = self._frozen.pop(id)
        stored: Stored = {}
        for table in frozen:
            stored[table.name], _ = self._writer.write(id, "u", table, base.get(table.name))
            table.release()
        return stored

    def restored(self, stored: Stored, groups: KeyGroupRange = ALL_GROUPS) -> RestoredTables:
        return RestoredTables((), tuple(stored.values()), groups, storage=self.storage)


def _content(kind: Kind, backend: StateBackend, checkpoints: _Checkpoints, stored: Stored) -> Any:
    with opened(backend) as store:
        restored = checkpoints.restored(stored)
        taken = store.adopt(restored)
        table = kind.open(store)
        _restore_others(store, restored, taken)
        return kind.content(table)


def _restore_others(store: KeyedStateStore, restored: RestoredTables, taken: Collection[str]) -> None:
    for name in restored.tables():
        if name not in taken:
            store.restore(name, restored.batches(name))


def increments_add_up_whatever_completes_and_whenever_that_is_heard(backend: StateBackend) -> None:
    """Random lives of a store: checkpoints that complete or fail, are heard of late, and are restored from; each that
    completed holds what was there at its cut, for the same backend and for another."""
    if not backend.incremental:
        return
    for kind in KINDS:
        for seed in range(3):
            _live(kind, backend, random.Random(f"{kind.name} {seed}"))


def _live(kind: Kind, backend: StateBackend, choose: random.Random) -> None:
    checkpoints = _Checkpoints()
    steps = iter(range(STEPS))
    completed: _Completed | None = None
    for first in steps:
        with opened(backend) as store:
            written: list[int] = []
            checkpoints.begin_attempt(completed)
            if completed is not None:
                written.extend(completed.written)
                _resume(store, completed.id, checkpoints.restored(completed.stored))
            table = kind.open(store)
            unheard: list[_Completed] = []
            for step in chain([first], steps):
                kind.write(table, step)
                written.append(step)
                store.tend()
                if choose.random() < 0.6:
                    cut, held = checkpoints.freeze(store), list(written)
                    if choose.random() < 0.5 and (more := next(steps, None)) is not None:
                        kind.write(table, more)  # before it is stored
                        written.append(more)
                        store.tend()
                    stored = checkpoints.store(cut)
                    if choose.random() < 0.3:
                        store.abort(cut)
                    else:
                        if choose.random() < 0.4:
                            _check(kind, backend, checkpoints, stored, held)
                        completed = _Completed(cut, stored, held)
                        unheard.append(completed)
                if unheard and choose.random() < 0.5:
                    heard = choose.choice(unheard)
                    checkpoints.confirm(store, heard)
                    unheard = [each for each in unheard if each.id > heard.id]
                if choose.random() < 0.1:
                    break
        if completed is not None:
            _check(kind, backend, checkpoints, completed.stored, completed.written)


def _resume(store: KeyedStateStore, checkpoint: CheckpointId, restored: RestoredTables) -> None:
    _restore_others(store, restored, store.resume(checkpoint, restored))


def _check(kind: Kind, backend: StateBackend, checkpoints: _Checkpoints, stored: Stored, written: list[int]) -> None:
    model = kind.of_memory()
    for step in written:
        kind.write(model, step)
    wanted = kind.content(model)
    for reader in (backend, Memory()):
        expect(_content(kind, reader, checkpoints, stored), wanted, f"{kind.name} of {list(stored.values())}")


def increments_are_read_at_any_parallelism(backend: StateBackend) -> None:
    if not backend.incremental:
        return
    for kind in KINDS:
        checkpoints = _Checkpoints()
        model = kind.of_memory()
        with opened(backend) as store:
            table = kind.open(store)
            for step in range(8):
                for each in (table, model):
                    kind.write(each, step)
                cut = checkpoints.freeze(store)
                latest = _Completed(cut, checkpoints.store(cut), [])
                checkpoints.confirm(store, latest)
        parts: list[tuple[_Checkpoints, Stored]] = []
        for subtask in range(3):
            groups = key_group_range(subtask, 3, MAX_PARALLELISM)
            with opened(backend, groups) as store:
                restored = checkpoints.restored(latest.stored, groups)
                _restore_others(store, restored, store.adopt(restored))
                kind.open(store)
                own = _Checkpoints()
                parts.append((own, own.store(own.freeze(store))))
        with opened(Memory()) as store:
            table = kind.open(store)
            for own, stored in parts:
                _restore_others(store, own.restored(stored), ())
            expect(kind.content(table), kind.content(model), f"{kind.name} after rescaling to 3 and back")


def a_checkpoint_with_no_new_input_stores_nothing(backend: StateBackend) -> None:
    if not backend.incremental:
        return
    for kind in KINDS:
        checkpoints = _Checkpoints()
        with opened(backend) as store:
            kind.write(kind.open(store), 0)
            cut = checkpoints.freeze(store)
            first = _Completed(cut, checkpoints.store(cut), [])
            checkpoints.confirm(store, first)
            again = checkpoints.store(checkpoints.freeze(store))
            expect(_files(again), _files(first.stored), f"{kind.name}: what is stored of nothing new")
        with opened(backend) as store:
            checkpoints.begin_attempt(first)
            _resume(store, first.id, checkpoints.restored(first.stored))
            kind.open(store)
            again = checkpoints.store(checkpoints.freeze(store))
            expect(_files(again), _files(first.stored), f"{kind.name}: what is stored of what was restored")


def _files(stored: Stored) -> set[str]:
    return {file.file for table in stored.values() for file in table.files}
