"""Timers of keys: what is set fires once, in the order of times, whatever snapshots were taken meanwhile."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.flow.key_groups import KeyGroupRange
from cutwater.operators.timers import TimerQueue
from cutwater.state.backend import KeyedStateStore, StateBackend
from cutwater.state.memory import Memory
from cutwater.state.rocksdb import RocksDB

KEYS = pa.schema([pa.field("k", pa.string())])
BACKENDS = [Memory(), RocksDB(cache=1)]
TABLE = TimerQueue.table_name("event")


def opened(backend: StateBackend, batches: Any = ()) -> tuple[KeyedStateStore, TimerQueue]:
    store = backend.open("t", KeyGroupRange(0, 127), 128)
    store.restore(TABLE, batches)
    return store, TimerQueue(store, "event", KEYS)


def kept(store: KeyedStateStore) -> list[pa.RecordBatch]:
    (table,) = store.freeze()
    batches = list(table.batches())
    table.release()
    return batches


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("abc"), st.integers(-5, 20)),
        st.tuples(st.just("due"), st.just(""), st.integers(-5, 20)),
        st.tuples(st.sampled_from(["snapshot", "restore", "tend"]), st.just(""), st.just(0)),
    ),
    max_size=40,
)


@pytest.mark.parametrize("backend", BACKENDS, ids=["memory", "rocksdb"])
@settings(max_examples=60)
@given(STEPS)
def test_timers_are_those_of_a_plain_set(backend: StateBackend, steps: list[tuple[str, str, int]]) -> None:
    store, queue = opened(backend)
    expected: set[tuple[int, str]] = set()
    taken: list[tuple[list[pa.RecordBatch], set[tuple[int, str]]]] = []
    try:
        for what, key, time in steps:
            match what:
                case "set":
                    queue.set(key, time)
                    expected.add((time, key))
                case "due":
                    fired = list(queue.due(time))
                    due = {each for each in expected if each[0] <= time}
                    assert sorted(fired) == sorted(due)
                    assert [each for each, _ in fired] == sorted(each for each, _ in fired)
                    expected -= due
                case "tend":
                    store.tend()
                case "snapshot":
                    taken.append((kept(store), set(expected)))
                case "restore" if taken:
                    store.close()
                    batches, expected = taken[-1][0], set(taken[-1][1])
                    store, queue = opened(backend, batches)
            assert queue.earliest() == min((each for each, _ in expected), default=None)
        assert sorted(queue.last()) == sorted(expected)
        assert sum(batch.num_rows for batch in kept(store)) == 0
    finally:
        store.close()


def test_a_snapshot_does_not_see_what_is_set_and_fired_behind_it() -> None:
    store, queue = opened(Memory())
    for time in (3, 1, 2):
        queue.set("a", time)
    (frozen,) = store.freeze()
    queue.set("a", 4)
    assert [time for time, _ in queue.due(2)] == [1, 2]
    (row,) = [row for batch in frozen.batches() for row in batch.to_pylist()]
    assert sorted(row[TABLE]) == [1, 2, 3]


def test_the_next_timer_of_a_key_does_not_copy_those_before() -> None:
    """Else thousands of timers of one key cost millions of copies."""
    _, queue = opened(Memory())
    queue.set("a", 1)
    times = queue._table.get("a")
    for time in range(2, 100):
        queue.set("a", time)
        assert queue._table.get("a") is times
    assert len(times) == 99
    for _ in queue.due(98):
        assert queue._table.get("a") is times
    assert times == [99]
