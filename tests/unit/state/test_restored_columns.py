"""What waits for its time is found again without reading what is kept beside it, on backends that can and those that cannot."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from cutwater.flow.key_groups import KeyGroupRange
from cutwater.operators import restored_timers
from cutwater.operators.kept_windows import keys_by_slot
from cutwater.operators.restored_timers import RestoredKeys
from cutwater.operators.timers import TimerQueue
from cutwater.state import handles
from cutwater.state.backend import KeyedStateStore, StateBackend
from cutwater.state.descriptors import BoundStates, ListState, MapState, ValueState, bind_states
from cutwater.state.memory import Memory
from cutwater.state.restored_columns import table_seen
from cutwater.state.rocksdb import RocksDB
from cutwater.state.rocksdb_rows import RocksDBRowTable
from cutwater.state.tables import RestoresColumns

KEYS = pa.schema([("user", pa.string()), ("n", pa.int64())])
KEPT = 600
BACKENDS = pytest.mark.parametrize("backend", [Memory(), RocksDB(cache=1)], ids=["memory", "rocksdb"])


class Expiring:
    value = ValueState("struct<a:int,b:string>", ttl="1s")
    items = ListState("int", ttl="1s")
    entries = MapState("string", "int", ttl="1s")


class Clock:
    time = 1_000

    def __call__(self) -> int:
        return self.time


def key_of(number: int) -> tuple[str, int]:
    return f"user {number}", number


def open_store(backend: StateBackend, old: KeyedStateStore | None = None) -> KeyedStateStore:
    """With what another one keeps."""
    store = backend.open("uid", KeyGroupRange(0, 127), 128)
    for table in [] if old is None else old.freeze():
        store.restore(table.name, list(table.batches()))
        table.release()
    return store


def kept_expiring(backend: StateBackend, clock: Clock) -> KeyedStateStore:
    """Those of odd numbers expire 500 ms later than the others."""
    store, function = open_store(backend), Expiring()
    states = bind_states(function, store, "uid", KEYS, clock)
    for rest in (0, 1):
        clock.time += 500 * rest
        for number in range(rest, KEPT, 2):
            write(function, states, number)
    return store


def write(function: Expiring, states: BoundStates, number: int) -> None:
    states.key = key_of(number)
    function.value.value = (number, "b")
    function.items.append(number)
    function.entries["x"] = number


def tend(states: BoundStates) -> None:
    for _ in range(3 * KEPT // 64):
        states.tend()


def left(store: KeyedStateStore) -> list[set[int]]:
    """Of each state the numbers of its keys."""
    return [{n for batch in table.batches() for n in batch.column("n").to_pylist()} for table in store.freeze()]


@BACKENDS
def test_restored_values_are_dropped_when_they_expire_whatever_became_of_them_meanwhile(
    backend: StateBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handles, "SWEEP_STEP", 64)
    clock = Clock()
    store, function = open_store(backend, kept_expiring(backend, clock)), Expiring()
    states = bind_states(function, store, "uid", KEYS, clock)
    for number in range(0, KEPT, 5):
        states.key = key_of(number)
        function.value.clear()
        function.items.clear()
        function.entries.clear()
    states.tend()
    clock.time += 500  # the even ones expire
    for number in range(0, KEPT, 7):
        write(function, states, number)
    tend(states)
    numbers = range(KEPT)
    there = {n for n in numbers if n % 7 == 0 or (n % 2 and n % 5)}
    assert left(store) == [there] * 3
    clock.time += 500
    tend(states)
    assert left(store) == [{n for n in numbers if n % 7 == 0}] * 3
    clock.time += 500
    tend(states)
    assert left(store) == [set()] * 3
    assert len(function.value._queue) == 0
    store.close()


@BACKENDS
def test_to_open_a_state_with_a_ttl_reads_none_of_it(backend: StateBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    store = open_store(backend, kept_expiring(backend, clock))
    monkeypatch.setattr(RocksDBRowTable, "items", refuse)
    monkeypatch.setattr(RocksDBRowTable, "get", refuse)
    monkeypatch.setattr(handles.Handle, "_expiry", refuse)
    function = Expiring()
    bind_states(function, store, "uid", KEYS, clock)
    assert len(function.value._queue) == 0
    store.close()


def refuse(*_: Any) -> Any:
    raise AssertionError("read")


@BACKENDS
def test_restored_timers_fire_in_their_order(backend: StateBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    old = open_store(backend)
    queue = TimerQueue(old, "event", KEYS)
    timers = [((number * 7919) % 1000, key_of(number % 200)) for number in range(KEPT)]
    for time, key in timers:
        queue.set(key, time)
    store = open_store(backend, old)
    with monkeypatch.context() as patch:
        patch.setattr(RocksDBRowTable, "items", refuse)
        queue = TimerQueue(store, "event", KEYS)
    monkeypatch.setattr(restored_timers, "RESTORED_AT_ONCE", 7)
    for time, key in timers[::3]:
        queue.set(key, time)
    new = [(time, ("new", time)) for time in (-1, 0, 500, 500, 3000)]
    for time, key in new:
        queue.set(key, time)
    assert queue.earliest() == -1
    fired = [*queue.due(400), *queue.due(2000)]
    assert [time for time, _ in fired] == sorted(time for time, _ in fired)
    assert sorted(fired) == sorted({*timers, *new[:-1]})
    assert [key for time, key in fired if time == 500][-1] == ("new", 500), "it was set behind those that were restored"
    assert queue.earliest() == 3000
    store.close()


@BACKENDS
def test_a_timer_of_a_key_with_few_takes_no_place_beside_its_heap(backend: StateBackend) -> None:
    """Else there would be a dict that grows at once."""
    store = open_store(backend)
    queue = TimerQueue(store, "event", KEYS)
    for number in range(KEPT):
        queue.set(key_of(number % 200), number)
    assert not queue._places
    for number in range(100):
        queue.set(key_of(1), number)
    assert list(queue._places) == [key_of(1)]
    assert len(list(queue.due(KEPT))) == KEPT + 100 - 1
    assert not queue._places
    store.close()


@BACKENDS
def test_to_set_the_same_timer_again_reads_nothing(backend: StateBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(backend)
    queue = TimerQueue(store, "event", KEYS)
    queue.set(key_of(1), 10)
    queue.set(key_of(1), 5)
    with monkeypatch.context() as patch:
        patch.setattr(type(queue._table), "get", refuse)
        queue.set(key_of(1), 5)
    assert list(queue.due(5)) == [(5, key_of(1))]
    queue.set(key_of(1), 5)
    queue.set(key_of(1), 10)
    assert list(queue.due(10)) == [(5, key_of(1)), (10, key_of(1))]
    assert not queue._latest
    store.close()


@BACKENDS
def test_the_ends_of_restored_sessions_are_found(backend: StateBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64()), ("content", pa.string())]))
    old = open_store(backend)
    table = old.rows("sessions", KEYS, kind)
    for number in range(KEPT):
        table.put(key_of(number), [(0, number, "a"), (number, 2 * number, None)][: 1 + number % 2])
    restored = RestoredKeys()

    def see(keys: list[Any], values: Any) -> None:
        restored.add(keys, values, values.flatten().field("end").to_numpy())

    monkeypatch.setattr(RocksDBRowTable, "restored", refuse)
    table_seen(open_store(backend, old), "sessions", KEYS, kind, see)
    found = list(zip(restored.keys, restored.times.tolist(), strict=True))
    ends = [(key_of(n), end) for n in range(KEPT) for end in (n, 2 * n)[: 1 + n % 2]]
    assert sorted(found) == sorted(ends)


@BACKENDS
def test_the_slots_of_restored_windows_are_found(backend: StateBackend) -> None:
    old = open_store(backend)
    table = old.rows("windows", KEYS, pa.string(), "window_start")
    for number in range(KEPT):
        for slot in slots_of(number):
            table.put((*key_of(number), slot), "a")
    table = open_store(backend, old).rows("windows", KEYS, pa.string(), "window_start")
    found = [(key, slot) for slot, keys in keys_by_slot(table, KEYS.names).items() for key in keys]
    assert sorted(found) == sorted((key_of(n), slot) for n in range(KEPT) for slot in slots_of(n))


def slots_of(number: int) -> range:
    return range(number, number + 1 + number % 3)


@pytest.fixture
def stored() -> Iterator[KeyedStateStore]:
    store = open_store(RocksDB(cache=1))
    yield store
    store.close()


def test_rows_may_change_while_they_are_read_in_columns(stored: KeyedStateStore) -> None:
    table = stored.rows("t", KEYS, pa.int64())
    for number in range(KEPT):
        table.put(key_of(number), number)
    store = open_store(RocksDB(cache=1), stored)
    table = store.rows("t", KEYS, pa.int64())
    assert isinstance(table, RestoresColumns)
    found: dict[Any, int] = {}
    parts = table.restored(100)
    for keys, values in parts:
        assert len(keys) <= 100
        found |= zip(keys, values.to_pylist(), strict=True)
        last = max(found.values())
        table.put(key_of(last), -1)
        table.delete(key_of(last - 1))
        table.put(key_of(KEPT + len(found)), -1)
        store.freeze()
        store.tend()
    assert all(value in (number, -1) for (_, number), value in found.items())
    assert len([key for key in found if key[1] < KEPT]) > 0.9 * KEPT
    store.close()


def test_nothing_was_restored_if_nothing_was_there(stored: KeyedStateStore) -> None:
    table = stored.rows("t", KEYS, pa.int64())
    assert isinstance(table, RestoresColumns)
    parts = table.restored(100)
    table.put(key_of(1), 1)
    stored.freeze()
    stored.tend()
    assert list(parts) == []
