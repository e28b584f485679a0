"""What a backend with ``incremental`` promises beyond the others: what it stores bit by bit is all there when it is read."""

import random
from itertools import chain
from typing import Any

from cutwater.flow.key_groups import key_group_range
from cutwater.state.backend import KeyedStateStore, StateBackend
from cutwater.state.memory import Memory
from cutwater.testing.contract_checkpoints import Checkpoints, Completed, Stored, adopted, restore_others, resumed
from cutwater.testing.contract_tables import KINDS, MAX_PARALLELISM, Kind, expect, opened

STEPS = 24


def _content(kind: Kind, backend: StateBackend, checkpoints: Checkpoints, stored: Stored) -> Any:
    with opened(backend) as store:
        restored = checkpoints.restored(stored)
        taken = adopted(store, restored)
        table = kind.open(store)
        restore_others(store, restored, taken)
        return kind.content(table)


def increments_add_up_whatever_completes_and_whenever_that_is_heard(backend: StateBackend) -> None:
    """Random lives of a store: checkpoints that complete or fail, are heard of late, and are restored from; each that
    completed holds what was there at its cut, for the same backend and for another."""
    if not backend.incremental:
        return
    for kind in KINDS:
        for seed in range(3):
            _live(kind, backend, random.Random(f"{kind.name} {seed}"))


def _live(kind: Kind, backend: StateBackend, choose: random.Random) -> None:
    checkpoints = Checkpoints()
    steps = iter(range(STEPS))
    completed: Completed | None = None
    for first in steps:
        with opened(backend) as store:
            written: list[int] = []
            checkpoints.begin_attempt(completed)
            if completed is not None:
                written.extend(completed.written)
                _resume(store, completed, checkpoints)
            table = kind.open(store)
            unheard: list[Completed] = []
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
                        completed = Completed(cut, stored, held)
                        unheard.append(completed)
                if unheard and choose.random() < 0.5:
                    heard = choose.choice(unheard)
                    checkpoints.confirm(store, heard)
                    unheard = [each for each in unheard if each.id > heard.id]
                if choose.random() < 0.1:
                    break
        if completed is not None:
            _check(kind, backend, checkpoints, completed.stored, completed.written)


def _resume(store: KeyedStateStore, completed: Completed, checkpoints: Checkpoints) -> None:
    restored = checkpoints.restored(completed.stored)
    restore_others(store, restored, resumed(store, completed.id, restored))


def _check(kind: Kind, backend: StateBackend, checkpoints: Checkpoints, stored: Stored, written: list[int]) -> None:
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
        checkpoints = Checkpoints()
        model = kind.of_memory()
        with opened(backend) as store:
            table = kind.open(store)
            for step in range(8):
                for each in (table, model):
                    kind.write(each, step)
                cut = checkpoints.freeze(store)
                latest = Completed(cut, checkpoints.store(cut), [])
                checkpoints.confirm(store, latest)
        parts: list[tuple[Checkpoints, Stored]] = []
        for subtask in range(3):
            groups = key_group_range(subtask, 3, MAX_PARALLELISM)
            with opened(backend, groups) as store:
                restored = checkpoints.restored(latest.stored, groups=groups)
                restore_others(store, restored, adopted(store, restored))
                kind.open(store)
                own = Checkpoints()
                parts.append((own, own.store(own.freeze(store))))
        with opened(Memory()) as store:
            table = kind.open(store)
            for own, stored in parts:
                restore_others(store, own.restored(stored), ())
            expect(kind.content(table), kind.content(model), f"{kind.name} after rescaling to 3 and back")


def a_checkpoint_with_no_new_input_stores_nothing(backend: StateBackend) -> None:
    if not backend.incremental:
        return
    for kind in KINDS:
        checkpoints = Checkpoints()
        with opened(backend) as store:
            kind.write(kind.open(store), 0)
            cut = checkpoints.freeze(store)
            first = Completed(cut, checkpoints.store(cut), [])
            checkpoints.confirm(store, first)
            again = checkpoints.store(checkpoints.freeze(store))
            expect(_files(again), _files(first.stored), f"{kind.name}: what is stored of nothing new")
        with opened(backend) as store:
            checkpoints.begin_attempt(first)
            _resume(store, first, checkpoints)
            kind.open(store)
            again = checkpoints.store(checkpoints.freeze(store))
            expect(_files(again), _files(first.stored), f"{kind.name}: what is stored of what was restored")


def _files(stored: Stored) -> set[str]:
    return {file.file for table in stored.values() for file in table.files}
