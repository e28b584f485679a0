"""Buckets of joins: many small ones are small, and all of them hold what was added, with an index or without."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state import compared_keys, memory_join
from cutwater.state.appended_rows import AppendedRows
from cutwater.state.backend import KeyedStateStore, StateBackend
from cutwater.state.cache_share import CacheShare
from cutwater.state.key_index import KeyIndex
from cutwater.state.memory_join import BUCKET_BYTES, COMPARED_PAIRS, PROMOTED_ROWS, MemoryJoin
from cutwater.state.rocksdb_cut import Gate
from cutwater.state.rocksdb_database import Database, Tuning
from cutwater.state.rocksdb_join import RocksDBJoin
from cutwater.state.tables import JoinSide, JoinTable

LEFT = JoinSide(pa.schema([("k", pa.int64()), ("n", pa.int64())]), ("k",))
RIGHT = JoinSide(pa.schema([("n", pa.int64()), ("key", pa.int64())]), ("key",))
NAMES = (
    JoinSide(pa.schema([("k", pa.string()), ("part", pa.int64()), ("n", pa.int64())]), ("k", "part")),
    JoinSide(pa.schema([("n", pa.int64()), ("key", pa.string()), ("of", pa.int64())]), ("key", "of")),
)
CACHE = 1 << 19
BUCKETS = 6


def rows_of(side: JoinSide, keys: list[int], numbers: list[int]) -> pa.RecordBatch:
    """Each key as one value, or as a text and a number."""
    of = [(key,) if len(side.keys) == 1 else (f"key {key // 2}", key % 2) for key in keys]
    return pa.RecordBatch.from_pylist(
        [{**dict(zip(side.keys, key, strict=True)), "n": n} for key, n in zip(of, numbers, strict=True)], side.schema
    )


class PlainJoin:
    """The same by looking at every row."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int]] = []

    def add(self, side: int, bucket: int, keys: list[int], numbers: list[int]) -> None:
        self.rows += [(side, bucket, key, n) for key, n in zip(keys, numbers, strict=True)]

    def matches(self, side: int, bucket: int, keys: list[int]) -> list[tuple[int, int]]:
        return [
            (at, n)
            for at, asked in enumerate(keys)
            for other, where, key, n in self.rows
            if other != side and where == bucket and key == asked
        ]

    def drop(self, bucket: int) -> None:
        self.rows = [row for row in self.rows if row[1] != bucket]

    def copy(self) -> "PlainJoin":
        copy = PlainJoin()
        copy.rows = list(self.rows)
        return copy


def opened(backend: StateBackend, sides: tuple[JoinSide, JoinSide]) -> tuple[KeyedStateStore, JoinTable]:
    store = backend.open("j1", KeyGroupRange(0, 127), 128)
    return store, store.join("pairs", *sides, "bucket")


def assert_same(table: JoinTable, plain: PlainJoin, sides: tuple[JoinSide, JoinSide], keys: list[int]) -> None:
    assert set(table.buckets()) == {bucket for _, bucket, _, _ in plain.rows}
    for bucket in range(-1, BUCKETS):
        for side in (0, 1):
            asked, others = table.matches(side, bucket, rows_of(sides[side], keys, keys))
            found = list(zip(asked.tolist(), others.column("n").to_pylist(), strict=True))
            assert found == plain.matches(side, bucket, keys)


@pytest.mark.parametrize("sides", [(LEFT, RIGHT), NAMES], ids=["numbers", "texts"])
@pytest.mark.parametrize(
    ("promoted", "compared"), [(0, 0), (20, 30), (PROMOTED_ROWS, 0), (PROMOTED_ROWS, COMPARED_PAIRS)]
)
@pytest.mark.parametrize("backend", ["memory", "incremental", "64KB", "1MB"])
def test_any_rows_find_their_pairs_before_and_after_their_bucket_has_an_index(
    backend: str, promoted: int, compared: int, sides: tuple[JoinSide, JoinSide], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(memory_join, "PROMOTED_ROWS", promoted)
    monkeypatch.setattr(memory_join, "COMPARED_PAIRS", compared)
    setting: dict[str, Any] = {"memory": cw.Memory(), "incremental": cw.Memory(incremental=True)}
    kept = setting.get(backend) or cw.RocksDB(cache=backend, local_directories=[str(tmp_path)])
    store, table = opened(kept, sides)
    plain = PlainJoin()
    random = np.random.default_rng(promoted)
    number = 0
    for step in range(60):
        side, bucket = int(random.integers(2)), int(random.integers(BUCKETS))
        keys = random.integers(0, 8, int(random.integers(1, 9))).tolist()
        numbers = list(range(number, number + len(keys)))
        number += len(keys)
        table.add(side, bucket, rows_of(sides[side], keys, numbers))
        plain.add(side, bucket, keys, numbers)
        if step % 10 == 4:
            assert_same(table, plain, sides, keys)
        if step % 7 == 6:
            table.drop(bucket)
            plain.drop(bucket)
        if step % 25 == 20:
            frozen, then = store.freeze(), plain.copy()
        if step % 25 == 24:
            other, again = opened(kept, sides)
            for each in frozen:
                other.restore(each.name, each.batches())
                each.release()
            assert_same(again, then, sides, [0, 1, 2, 0, 99])
            other.close()
    assert_same(table, plain, sides, list(range(9)))
    store.close()


def test_keys_of_the_same_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compared_keys, "hash_arrays", lambda _, rows: np.zeros(rows, np.uint64))
    store, table = opened(cw.Memory(), NAMES)
    plain = PlainJoin()
    for side, keys in enumerate(([1, 2, 1, 3], [3, 1, 4])):
        table.add(side, 0, rows_of(NAMES[side], keys, keys))
        plain.add(side, 0, keys, keys)
    for keys in ([1, 3], [3], [5], [1]):
        assert_same(table, plain, NAMES, keys)
    store.close()


def test_few_rows_are_asked_for_without_making_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(memory_join, "KeyIndex", lambda *of: made.append(of) or KeyIndex(*of))
    join = MemoryJoin(NAMES, "bucket", 128)
    for key in range(PROMOTED_ROWS):
        row = rows_of(NAMES[key % 2], [key], [key])
        join.matches(key % 2, 0, row)
        join.add(key % 2, 0, row)
    assert made == []
    join.add(0, 0, rows_of(NAMES[0], [0], [0]))
    assert len(made) == 1


def test_restored_rows_come_into_an_index_that_need_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    many = 20_000
    old = cw.Memory().open("j", KeyGroupRange(0, 127), 128)
    join = old.join("j", *NAMES, "bucket")
    for start in range(0, many, 1000):
        numbers = range(start, start + 1000)
        join.add(0, 0, rows_of(NAMES[0], list(numbers), list(numbers)))
    monkeypatch.setattr(KeyIndex, "_grow", lambda self, part: pytest.fail("an index grew"))
    monkeypatch.setattr(AppendedRows, "joined", lambda self, columns: pytest.fail("all keys in one column"))
    store = cw.Memory().open("j", KeyGroupRange(0, 127), 128)
    again = store.join("j", *NAMES, "bucket")
    for table in old.freeze():
        store.restore(table.name, table.batches())
    asked, found = again.matches(1, 0, rows_of(NAMES[1], [5, many - 1, many], [0, 0, 0]))
    assert asked.tolist() == [0, 1]
    assert found.num_rows == 2


def test_a_bucket_of_few_rows_takes_few_bytes() -> None:
    """Of a million rows each may have a bucket of its own: a join within 10 ms, of a stream that lags."""
    buckets = 200

    def fill(join: MemoryJoin) -> None:
        for bucket in range(buckets):
            for side, sort in enumerate((LEFT, RIGHT)):
                row = rows_of(sort, [bucket], [bucket])
                join.matches(side, bucket, row)
                join.add(side, bucket, row)

    fill(MemoryJoin((LEFT, RIGHT), "bucket", 128))  # the kernels are loaded with their first use
    join = MemoryJoin((LEFT, RIGHT), "bucket", 128)
    tracemalloc.start()
    try:
        fill(join)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < buckets * 2 * BUCKET_BYTES
    assert join.bytes_beside_rows == buckets * BUCKET_BYTES


@pytest.mark.parametrize("sides", [(LEFT, RIGHT), NAMES], ids=["numbers", "texts"])
def test_what_indexes_take_is_known_while_buckets_grow_are_asked_and_go(sides: tuple[JoinSide, JoinSide]) -> None:
    join = MemoryJoin(sides, "bucket", 128)
    for start in range(0, 12_000, 1500):
        for bucket in (1, 2):
            keys = list(range(start, start + 1000 * bucket))
            join.add(0, bucket, rows_of(sides[0], keys, keys))
            join.matches(1, bucket, rows_of(sides[1], [*keys, -start], [0, *keys]))
        assert join.bytes_beside_rows == 2 * BUCKET_BYTES + sum(map(bytes_of_index, join.of.values()))
    join.drop(1)
    join.drop(3)
    assert join.bytes_beside_rows == BUCKET_BYTES + bytes_of_index(join.of[2])
    join.drop(2)
    assert join.bytes_beside_rows == 0


def bytes_of_index(bucket: Any) -> int:
    """All of its arrays."""
    index: KeyIndex = bucket._index._index
    arrays = [*index._parts, *index._hashes.arrays, *index._located.arrays, *index._arenas]
    arrays += [links for chains in bucket._index._chains for links in (chains._newest, chains._before)]
    return sum(array.nbytes for array in arrays)


@pytest.mark.parametrize("rows", [1, PROMOTED_ROWS + 1])
def test_the_cache_of_rocksdb_bounds_buckets_and_their_indexes_too(tmp_path: Path, rows: int) -> None:
    tuning = Tuning(1 << 20, 1 << 20, "lz4")
    families = [Database("uid", str(tmp_path / side), tuning).family("n") for side in ("left", "right")]
    join = RocksDBJoin("n", (LEFT, RIGHT), "bucket", 128, CacheShare(CACHE), Gate(), families)
    batch = rows_of(LEFT, list(range(rows)), list(range(rows)))
    one = MemoryJoin((LEFT, RIGHT), "bucket", 128)
    one.add(0, 0, batch)
    for bucket in range(3 * CACHE // one.bytes_beside_rows):
        join.add(0, bucket, batch)
        held = sum(len(memory.of) for memory in join.parts.memories())
        assert held * one.bytes_beside_rows <= CACHE
    assert join.parts.written[0]
    assert sorted(join.buckets()) == list(range(bucket + 1))
