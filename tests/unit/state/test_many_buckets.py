"""Very many buckets: a freeze goes through none of them, is read as it was, and those that are dropped wait as one."""

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state import memory_panes
from cutwater.state.backend import KeyedStateStore
from cutwater.state.cache_share import CacheShare
from cutwater.state.frozen import FrozenTable
from cutwater.state.memory_buckets import MemoryBuckets
from cutwater.state.rocksdb_cut import Gate
from cutwater.state.rocksdb_database import Database, Tuning
from cutwater.state.rocksdb_join import RocksDBJoin
from cutwater.state.rocksdb_parts import STEP_BUCKETS
from cutwater.state.tables import Column, JoinSide, Merge

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64())])
SIDE = JoinSide(SCHEMA, ("k",))

MANY = 600
MANY_LARGE = 150

Add = Callable[[int, pa.RecordBatch], None]
Rows = dict[int, list[int]]


def row(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"k": number % 3, "n": number}], SCHEMA)


def into_buckets(store: KeyedStateStore) -> Add:
    return store.buckets("state", SCHEMA, ("k",), "bucket").add


def into_a_join(store: KeyedStateStore) -> Add:
    join = store.join("state", SIDE, SIDE, "bucket")
    return lambda bucket, rows: join.add(bucket % 2, bucket, rows)


def into_panes(store: KeyedStateStore) -> Add:
    return store.panes("state", SCHEMA.remove(1), "bucket", [(Column("n", pa.int64()), Merge.LAST)]).merge


def rows_in(batches: Iterator[pa.RecordBatch] | list[pa.RecordBatch]) -> Rows:
    found: Rows = {}
    for batch in batches:
        for each in batch.to_pylist():
            found.setdefault(each["bucket"], []).append(each["n"])
    return found


def work_of(do: Callable[[], Any]) -> tuple[int, Any]:
    """How many steps Python made: also one that calls nothing, as in a loop that only looks at each bucket."""
    steps = 0

    def count(frame: Any, event: str, argument: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        result = do()
    finally:
        sys.settrace(before)
    return steps, result


def work_of_freezes(store: KeyedStateStore, add: Add, buckets: int) -> list[int]:
    """Of the first one, and of the next behind a few rows more."""
    for bucket in range(buckets):
        add(bucket, row(bucket))
    work = []
    for number in (1, 2):
        checkpoint = CheckpointId(number)
        counted, frozen = work_of(lambda checkpoint=checkpoint: store.freeze(checkpoint))
        work.append(counted)
        for table in frozen:
            assert sum(batch.num_rows for batch in table.batches()) <= buckets + 1
            table.release()
        store.confirm(checkpoint)
        add(0, row(0))
    return work


ON_ALL = pytest.mark.parametrize("backend", [cw.Memory(), cw.Memory(incremental=True), cw.RocksDB(), "files"], ids=str)


def assert_same_work(backend: Any, into: Callable[[KeyedStateStore], Add], most: int, tmp_path: Path) -> None:
    kept = cw.RocksDB(incremental=True, local_directories=[str(tmp_path)]) if backend == "files" else backend
    stores = [kept.open("w1", KeyGroupRange(0, 127), 128) for _ in range(3)]
    work_of_freezes(stores[0], into(stores[0]), 5)  # what is done once only
    few, many = (work_of_freezes(store, into(store), n) for store, n in zip(stores[1:], (10, most), strict=True))
    assert max(np.subtract(many, few)) < 3 * most  # even a loop that only looks at each takes more
    for store in stores:
        store.close()


@pytest.mark.parametrize("into", [into_buckets, into_a_join, into_panes])
@ON_ALL
def test_a_freeze_does_the_same_work_however_many_buckets_there_are(
    backend: Any, into: Callable[[KeyedStateStore], Add], tmp_path: Path
) -> None:
    assert_same_work(backend, into, MANY, tmp_path)


@ON_ALL
def test_a_freeze_does_the_same_work_however_many_panes_are_large(
    backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_panes, "PROMOTED_ROWS", 0)
    assert_same_work(backend, into_panes, MANY_LARGE, tmp_path)


class Reading:
    """A frozen table, read while its table goes on."""

    def __init__(self, frozen: FrozenTable, then: Rows) -> None:
        self._frozen = frozen
        self._then = then
        self._batches = frozen.batches()
        self._read: list[pa.RecordBatch] = []

    def go_on(self) -> None:
        self._read.extend(batch for batch in [next(self._batches, None)] if batch is not None)

    def end(self) -> None:
        self._read.extend(self._batches)
        assert rows_in(self._read) == self._then
        self._frozen.release()


@pytest.mark.parametrize("seed", range(20))
def test_freezes_that_are_read_meanwhile_hold_what_there_was(seed: int) -> None:
    random = np.random.default_rng(seed)
    table = MemoryBuckets("state", SCHEMA, ("k",), "bucket", 128)
    model: Rows = {}
    readings: list[Reading] = []
    for number in range(400):
        bucket = int(random.integers(12))
        match random.choice(["add", "drop", "freeze", "read", "end"], p=[0.5, 0.15, 0.1, 0.2, 0.05]):
            case "add":
                table.add(bucket, row(number))
                model.setdefault(bucket, []).append(number)
            case "drop":
                table.drop(bucket)
                model.pop(bucket, None)
            case "freeze":
                readings.append(Reading(table.freeze(), {each: list(rows) for each, rows in model.items()}))
            case "read" if readings:
                readings[int(random.integers(len(readings)))].go_on()
            case "end" if readings:
                readings.pop(int(random.integers(len(readings)))).end()
    for reading in readings:
        reading.end()
    assert rows_in(table.freeze().batches()) == model


def test_a_freeze_that_another_thread_reads_holds_what_there_was() -> None:
    table = MemoryBuckets("state", SCHEMA, ("k",), "bucket", 128)
    for number in range(300):
        table.add(number, row(number))
    frozen = table.freeze()
    read: list[pa.RecordBatch] = []
    reader = threading.Thread(target=lambda: read.extend(frozen.batches()))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        reader.start()
        number = 300
        while reader.is_alive():
            table.drop(number % 299)
            table.add(number % 301, row(number))
            number += 1
    finally:
        sys.setswitchinterval(interval)
        reader.join()
    assert rows_in(read) == {bucket: [bucket] for bucket in range(300)}


def test_what_is_dropped_stays_only_as_long_as_a_freeze_is_read() -> None:
    table = MemoryBuckets("state", SCHEMA, ("k",), "bucket", 128)
    for number in range(3):
        table.add(number, row(number))
    earlier, later = table.freeze(), table.freeze()
    chunks = [ref(table._of[number].chunks[0]) for number in range(3)]
    table.drop(0)
    later.release()
    table.drop(1)
    assert chunks[0]() is not None
    assert chunks[1]() is not None
    earlier.release()
    table.drop(2)
    assert [chunk() for chunk in chunks] == [None] * 3


class Dropped:
    """How many ranges went from a family, at most at once."""

    def __init__(self, family: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0
        self.most = 0
        drop = family.drop

        def counted(prefixes: list[bytes], share: float) -> None:
            self.now += len(prefixes)
            self.most = max(self.most, self.now)
            drop(prefixes, share)

        monkeypatch.setattr(family, "drop", counted)


def test_buckets_that_are_dropped_while_others_are_written_wait_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each that is dropped, and each row that is read, would look at all that wait."""
    buckets = 500
    database = Database("uid", str(tmp_path), Tuning(1 << 20, 1 << 20, "lz4"))
    families = [database.family(side) for side in ("left", "right")]
    join = RocksDBJoin("n", (SIDE, SIDE), "bucket", 128, CacheShare(1 << 19), Gate(), families)
    for bucket in range(buckets):
        join.add(0, bucket, row(bucket))
    assert join.parts.written[0]
    left = join.sides[0]
    join.add(0, buckets, row(buckets))
    join.parts.freeze()  # all is on its way, and nothing is there for good
    before = left.freeze()
    for bucket in range(buckets):
        join.drop(bucket)
        assert len(join.parts._leaving) < 6
    after = left.freeze()
    join.drop(buckets)
    assert set(rows_in(before.batches())) == set(range(buckets + 1))
    assert set(rows_in(after.batches())) == {buckets}
    assert set(join.buckets()) == set()
    dropped = Dropped(families[0], monkeypatch)
    for number in range(buckets + 1, 3 * buckets):
        dropped.now = 0
        join.add(0, number, row(number))
        join.drop(number)
    assert not [each for each in join.parts._leaving if each.size == 0]
    assert 0 < dropped.most <= 3 * STEP_BUCKETS
    database.close()
