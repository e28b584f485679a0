"""What operators rely on, whether a backend is ``incremental`` or not: its stores have all that is called, hold what they say that
they took over, and may hear of checkpoints that they do not know."""

from collections.abc import Callable, Sequence

from cutwater.flow.ids import CheckpointId
from cutwater.state.backend import KeyedStateStore, StateBackend
from cutwater.state.memory import Memory
from cutwater.testing.contract_checkpoints import Checkpoints, Completed, adopted, restore_others, resumed
from cutwater.testing.contract_stores import numbered
from cutwater.testing.contract_tables import expect, opened

_TABLES = numbered(1)


def stores_have_all_that_operators_call(backend: StateBackend) -> None:
    """Also what they have nothing to do for."""
    wanted = [name for name in vars(KeyedStateStore) if not name.startswith("_")]
    with opened(backend) as store:
        lacks = [name for name in wanted if not callable(getattr(store, name, None))]
    expect(lacks, [], "methods that the store lacks")


def what_a_store_says_that_it_took_over_is_there(backend: StateBackend) -> None:
    """From files of its own, and from those of another backend."""
    for writer in (backend, Memory(incremental=True)):
        checkpoints = Checkpoints()
        with opened(writer) as store:
            life = _Life(checkpoints, store, [])
            for _ in range(2):
                life.write()
                completed = life.complete()
                checkpoints.confirm(store, completed)
        for method in ("adopt", "resume"):
            restored = checkpoints.restored(completed.stored)
            with opened(backend) as store:
                taken = adopted(store, restored) if method == "adopt" else resumed(store, completed.id, restored)
                restore_others(store, restored, taken)
                for one in _TABLES:
                    said = any(name in taken for name in one.frozen_as)
                    what = f"says that it took over {one.name}" if said else f"leaves {one.name} to restore"
                    found = one.kind.content(one.open(store))
                    expect(found, one.content_of(completed.written), f"{method} {what}, which then holds")


def unknown_and_repeated_fates_change_nothing(backend: StateBackend) -> None:
    """Neither for the store nor for what is stored next."""
    checkpoints = Checkpoints()
    with opened(backend) as store:
        life = _Life(checkpoints, store, [])
        unknown = checkpoints.begin()
        life.hear(store.abort, unknown, "that was never frozen")
        life.write()
        first = life.complete()
        checkpoints.confirm(store, first)
        life.write()
        failed = checkpoints.freeze(store)
        life.write()
        life.hear(store.confirm, unknown, "that was never frozen")
        life.hear(store.confirm, first.id, "for the second time")
        second = life.complete()
        _expect_stored(backend, checkpoints, second, "what is stored when confirm was told of others")
        life.write()
        checkpoints.confirm(store, second)
        life.hear(store.confirm, first.id, "that is older than the last one")
        checkpoints.give_up(failed)
        life.hear(store.abort, failed, "when a later one has completed")
        life.hear(store.abort, failed, "for the second time")
        life.hear(store.abort, checkpoints.begin(), "that was never frozen")
        third = life.complete()
    with opened(backend) as store:
        checkpoints.begin_attempt(third)
        restored = checkpoints.restored(third.stored)
        restore_others(store, restored, resumed(store, third.id, restored))
        life = _Life(checkpoints, store, third.written)
        life.hear(store.confirm, third.id, "that was resumed from")
        life.hear(store.abort, unknown, "that was never frozen")
        life.write()
        fourth = life.complete()
    _expect_stored(backend, checkpoints, fourth, "what is stored when abort was told of others")


class _Life:
    """Of a store with a table of each kind. ``written``: the steps that it was restored with."""

    def __init__(self, checkpoints: Checkpoints, store: KeyedStateStore, written: Sequence[int]) -> None:
        self._checkpoints = checkpoints
        self._store = store
        self._written = list(written)
        self._tables = [(one, one.open(store)) for one in _TABLES]

    def write(self) -> None:
        step = len(self._written)
        for one, table in self._tables:
            one.write(table, [step])
        self._written.append(step)
        self._store.tend()

    def complete(self) -> Completed:
        """A checkpoint of which the store has not heard yet that it did."""
        cut = self._checkpoints.freeze(self._store)
        return Completed(cut, self._checkpoints.store(cut), list(self._written))

    def hear(self, told: Callable[[CheckpointId], object], checkpoint: CheckpointId, which: str) -> None:
        try:
            told(checkpoint)
        except Exception as error:
            what = f"{told.__name__} of a checkpoint {which} raises {type(error).__name__}: {error}"
            raise AssertionError(f"{what}; it has to change nothing") from error


def _expect_stored(backend: StateBackend, checkpoints: Checkpoints, completed: Completed, what: str) -> None:
    restored = checkpoints.restored(completed.stored)
    with opened(backend) as store:
        restore_others(store, restored, adopted(store, restored))
        for one in _TABLES:
            expect(one.kind.content(one.open(store)), one.content_of(completed.written), f"{what}: {one.name}")
