"""Panes and buckets of few rows each are restored on RocksDB as its rows, without being gathered in memory one by one. So are
panes that would not stay in memory."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.flow.batches import pieces
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state import rocksdb_bulk
from cutwater.state.backend import KeyedStateStore
from cutwater.state.memory_buckets import MemoryBuckets
from cutwater.state.memory_join import MemoryJoin
from cutwater.state.memory_panes import MemoryPanes
from cutwater.state.tables import Column, JoinSide, Merge

KEYS = pa.schema([("k", pa.string())])
COLUMNS = [
    (Column("sum", pa.int64(), nullable=False), Merge.ADD),
    (Column("first", pa.int64()), Merge.FIRST),
    (Column("last", pa.int64()), Merge.LAST),
]
PARTIAL = pa.schema([*KEYS, *(column.field for column, _ in COLUMNS)])
SIDE = JoinSide(pa.schema([("k", pa.string()), ("n", pa.int64())]), ("k",))
BUCKETS = range(40)


def opened(tmp_path: Path, name: str, cache: str = "64KB") -> KeyedStateStore:
    (tmp_path / name).mkdir()
    backend = cw.RocksDB(cache=cache, local_directories=[str(tmp_path / name)])
    return backend.open("w", KeyGroupRange(0, 127), 128)


def again(old: KeyedStateStore, tmp_path: Path, cache: str = "64KB") -> KeyedStateStore:
    store = opened(tmp_path, "again", cache)
    for table in old.freeze():
        store.restore(table.name, list(table.batches()))
        table.release()
    return store


@pytest.mark.parametrize(("few", "cache", "is_gathered"), [(256, "64MB", False), (0, "64KB", False), (0, "64MB", True)])
def test_panes(tmp_path: Path, few: int, cache: str, is_gathered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb_bulk, "FEW_ROWS", few)
    chosen, old = random.Random(3), opened(tmp_path, "old")
    table = old.panes("panes", KEYS, "start", COLUMNS)
    for n in range(400):
        rows = [{"k": f"key {chosen.randrange(30)}", "sum": n, "first": n, "last": n} for _ in range(9)]
        table.merge(chosen.choice(BUCKETS), pa.RecordBatch.from_pylist(rows, PARTIAL))
    wanted = [panes_of(table, pane) for pane in BUCKETS]
    store = again(old, tmp_path, cache)
    with monkeypatch.context() as gathering:
        if not is_gathered:
            gathering.setattr(MemoryPanes, "merge", lambda *_: pytest.fail("rows that are in memory"))
        restored = store.panes("panes", KEYS, "start", COLUMNS)
    assert [panes_of(restored, pane) for pane in BUCKETS] == wanted
    more = pa.RecordBatch.from_pylist([{"k": "key 1", "sum": 1, "first": -1, "last": -1}], PARTIAL)
    for each in (table, restored):
        each.merge(5, more)
        each.drop(6)
    assert panes_of(restored, 5) == panes_of(table, 5)
    assert panes_of(restored, 6) == {}
    for each in (old, store):
        each.close()


def panes_of(table: Any, pane: int) -> dict[str, Any]:
    return {row["k"]: row for batch in table.read([pane]) for row in batch.to_pylist()}


@pytest.mark.parametrize("few", [0, 256])
def test_joins(tmp_path: Path, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb_bulk, "FEW_ROWS", few)
    chosen, old = random.Random(3), opened(tmp_path, "old")
    table = old.join("j", SIDE, SIDE, "bucket")
    for n in range(400):
        rows = [{"k": f"key {chosen.randrange(30)}", "n": n} for _ in range(9)]
        table.add(n % 2, chosen.choice(BUCKETS), pa.RecordBatch.from_pylist(rows, SIDE.schema))
    store = again(old, tmp_path)
    with monkeypatch.context() as gathering:
        if few:
            gathering.setattr(MemoryJoin, "add", lambda *_: pytest.fail("a few rows of a bucket"))
        restored = store.join("j", SIDE, SIDE, "bucket")
    assert set(restored.buckets()) == set(table.buckets())
    asked = pa.RecordBatch.from_pylist([{"k": f"key {key}", "n": 0} for key in range(31)], SIDE.schema)
    for side in (0, 1):
        for bucket in BUCKETS:
            found, wanted = (each.matches(side, bucket, asked) for each in (restored, table))
            assert found[0].tolist() == wanted[0].tolist()
            assert found[1].to_pylist() == wanted[1].to_pylist()
    for each in (old, store):
        each.close()


def test_few_rows_are_joined_with_many(tmp_path: Path) -> None:
    """What was restored of one side waits to be written when the other is brought into RocksDB at once."""
    numbers = range(9_000)
    rows = pa.record_batch([pa.array([f"key {n}" for n in numbers]), pa.array(numbers, pa.int64())], schema=SIDE.schema)
    few = rows.slice(0, 50)
    old = opened(tmp_path, "old", "64MB")
    table = old.join("j", SIDE, SIDE, "bucket")
    table.add(0, 7, rows)
    table.add(1, 7, few)
    stored = {each.name: list(each.batches()) for each in old.freeze()}
    for cache in (1_200, 2_000, 2_400):
        store = opened(tmp_path, str(cache), f"{cache}KB")
        for name, batches in stored.items():
            store.restore(name, (piece for batch in batches for piece in pieces(batch, 1_000)))
        restored = store.join("j", SIDE, SIDE, "bucket")
        assert len(restored.matches(0, 7, rows)[0]) == few.num_rows
        assert len(restored.matches(1, 7, few)[0]) == few.num_rows
        again_stored = {each.name: sum(batch.num_rows for batch in each.batches()) for each in store.freeze()}
        assert again_stored == {"j.left": rows.num_rows, "j.right": few.num_rows}
        store.close()
    old.close()


@pytest.mark.parametrize("few", [0, 256])
def test_buckets(tmp_path: Path, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb_bulk, "FEW_ROWS", few)
    chosen, old = random.Random(3), opened(tmp_path, "old")
    table = old.buckets("rows", SIDE.schema, SIDE.keys, "bucket")
    for n in range(400):
        rows = [{"k": f"key {chosen.randrange(30)}", "n": n} for _ in range(9)]
        table.add(chosen.choice(BUCKETS), pa.RecordBatch.from_pylist(rows, SIDE.schema))
    store = again(old, tmp_path)
    with monkeypatch.context() as gathering:
        if few:
            gathering.setattr(MemoryBuckets, "add", lambda *_: pytest.fail("a few rows of a bucket"))
        restored = store.buckets("rows", SIDE.schema, SIDE.keys, "bucket")
    assert set(restored.buckets()) == set(table.buckets())
    assert [rows_of(restored, bucket) for bucket in BUCKETS] == [rows_of(table, bucket) for bucket in BUCKETS]
    more = pa.RecordBatch.from_pylist([{"k": "key 1", "n": -1}], SIDE.schema)
    for each in (table, restored):
        each.add(5, more)
        each.drop(6)
    assert rows_of(restored, 5) == rows_of(table, 5)
    assert rows_of(restored, 6) == {}
    for each in (old, store):
        each.close()


def rows_of(table: Any, bucket: int) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for batch in table.read([bucket]):
        for row in batch.to_pylist():
            found.setdefault(row["k"], []).append(row["n"])
    return found
