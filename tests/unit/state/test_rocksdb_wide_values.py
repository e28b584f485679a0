"""The cache, and what is read at once, go by bytes: of wide values few are in memory."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cutwater.state.cache_share import CacheShare
from cutwater.state.rocksdb_aggregates import RocksDBAggregateTable
from cutwater.state.rocksdb_bulk import ingest_rows
from cutwater.state.rocksdb_cut import Gate
from cutwater.state.rocksdb_database import Database, Tuning
from cutwater.state.rocksdb_family import READ_BYTES, Entries, Family, in_lists
from cutwater.state.rocksdb_rows import PACE, WRITE_STEP, RocksDBRowTable
from cutwater.state.row_layers import RowForm
from cutwater.state.tables import Column, Merge, Update

KEYS = pa.schema([pa.field("k", pa.int64())])
SHARE = 1 << 20


class WatchedFamily(Family):
    """Knows how many rows were written, and how large the parts were that became a file."""

    written = 0
    most = 0

    def write(self, keys: Sequence[bytes], values: Sequence[bytes], deleted: Iterable[bytes] = ()) -> None:
        self.written += len(keys)
        self.most = max(self.most, len(keys))
        super().write(keys, values, deleted)

    def ingest(self, entries: Iterable[Entries]) -> None:
        self.parts = [sum(map(len, values)) for _, values in entries]


@pytest.fixture
def family(tmp_path: Path) -> WatchedFamily:
    opened = Database("uid", str(tmp_path / "db"), Tuning(1 << 20, 1 << 20, "lz4")).family("n", WatchedFamily)
    assert isinstance(opened, WatchedFamily)
    return opened


def held_by(table: RocksDBRowTable) -> int:
    return len(table._top) + sum(map(len, table._below)) + len(table._recent)


@pytest.mark.parametrize(
    ("value", "size"),
    [("x" * 4000, 4000), (b"x" * 4000, 4000), (list(range(500)), 4 * 4000)],
    ids=["texts", "bytes", "lists"],
)
def test_aggregates_with_wide_values_keep_to_the_cache(family: WatchedFamily, value: Any, size: int) -> None:
    kind = pa.scalar(value).type
    columns = [Column("n", pa.int64(), nullable=False), Column("wide", kind)]
    table = RocksDBAggregateTable("uid", "n", KEYS, columns, 128, family, CacheShare(SHARE), Gate())
    most = 0
    for start in range(0, 2000, 20):
        keys = pa.record_batch([pa.array(np.arange(start, start + 20))], schema=KEYS)
        wide = Update(1, Merge.MAX, pa.array([value] * 20, kind))
        table.update(table.locate(keys), [Update(0, Merge.COUNT), wide])
        most = max(most, sum(map(len, table._spaces())))
    assert most * size <= SHARE * 4 // 3 + 20 * size
    assert len(table) == 2000
    touched = table.locate(pa.record_batch([pa.array([0, 1999])], schema=KEYS))
    assert [column.to_pylist() for column in table.read(touched.unique)] == [[1, 1], [value, value]]


def test_objects_that_are_replaced_by_wider_ones_count_as_such(family: WatchedFamily) -> None:
    kind = pa.list_(pa.int64())
    table = RocksDBAggregateTable("uid", "n", KEYS, [Column("wide", kind)], 128, family, CacheShare(SHARE), Gate())
    keys = pa.record_batch([pa.array(np.arange(100))], schema=KEYS)
    for length in (1, 1, 1000, 1000):
        assert family.written == 0
        table.update(table.locate(keys), [Update(0, Merge.LAST, pa.array([[7] * length] * 100, kind))])
    table.locate(keys)
    assert family.written > 0


def test_row_functions_write_in_proportion_to_large_batches(family: WatchedFamily) -> None:
    """Not a whole layer at once, because too little of it was written before."""
    table = RocksDBRowTable(RowForm.of("uid", "n", KEYS, pa.int64(), 128), family, CacheShare(16 * SHARE), Gate())
    batch = 4 * WRITE_STEP
    for start in range(0, 40 * batch, batch):
        for key in range(start, start + batch):
            table.put(key, key)
        before = family.written
        table.tend()
        assert family.written - before <= PACE * batch + WRITE_STEP
    assert family.written >= 20 * batch


def test_wide_values_of_row_functions_keep_to_the_cache_from_the_first_ones_on(family: WatchedFamily) -> None:
    table = RocksDBRowTable(RowForm.of("uid", "n", KEYS, pa.binary(), 128), family, CacheShare(SHARE), Gate())
    for key in range(1000):
        table.put(key, bytes(20_000))
        if key % 10 == 9:
            table.tend()
            assert held_by(table) * 20_000 <= 2 * SHARE
    assert len(dict(table.items())) == 1000


def test_wide_values_are_written_in_steps_of_few(family: WatchedFamily) -> None:
    table = RocksDBRowTable(RowForm.of("uid", "n", KEYS, pa.binary(), 128), family, CacheShare(64 << 20), Gate())
    for key in range(1000):
        table.put(key, bytes(50_000))
    table.tend()
    assert 0 < family.most <= 100


def test_values_that_grow_in_place_are_seen_to(family: WatchedFamily) -> None:
    """Nothing is put: a function appends to what it was given before."""
    table = RocksDBRowTable(RowForm.of("uid", "n", KEYS, pa.list_(pa.string()), 128), family, CacheShare(SHARE), Gate())
    for key in range(20):
        table.put(key, [])
    rounds = 0
    while family.written == 0 and rounds < 100:
        table.expect(range(20))
        for key in range(20):
            table.own(key, list).append("x" * 2000 + str(rounds))
        table.tend()
        rounds += 1
    assert 10 <= rounds <= 50, "half of the cache is full after 13"


def test_small_values_fill_the_cache(family: WatchedFamily) -> None:
    table = RocksDBRowTable(RowForm.of("uid", "n", KEYS, pa.int64(), 128), family, CacheShare(SHARE), Gate())
    for key in range(3000):
        table.put(key, key)
        if key % 100 == 99:
            table.tend()
    assert family.written == 0


def test_a_list_of_wide_entries_is_short() -> None:
    entries = [(bytes([i]), bytes(1 << 20 if i < 30 else 10)) for i in range(200)]
    lists = list(in_lists(iter(entries), 8192))
    assert [len(keys) for keys, _ in lists] == [8, 8, 8, 176]
    assert [entry for keys, values in lists for entry in zip(keys, values, strict=True)] == entries


def test_wide_rows_become_a_file_a_few_at_a_time(family: WatchedFamily) -> None:
    table = RocksDBRowTable(RowForm.of("uid", "n", KEYS, pa.binary(), 128), family, CacheShare(SHARE), Gate())
    for key in range(40):
        table.put(key, bytes(1 << 20))
    batches = list(table.freeze().batches())
    assert ingest_rows(family, table.layout, [pa.concat_batches(batches)], 1 << 20) == 40  # type: ignore[attr-defined]
    assert max(family.parts) <= READ_BYTES + (1 << 20)
