"""Very many rows on their way into RocksDB: whatever their order and however many files they become, each is found again."""

from collections.abc import Iterator
from operator import length_hint
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cutwater.flow.hashing import hash_arrays, key_groups
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state import rocksdb_bulk
from cutwater.state.rocksdb_adoption import stored_databases, with_base
from cutwater.state.rocksdb_bulk import are_more_than, ingest_entries, ingest_rows
from cutwater.state.rocksdb_database import Database, Tuning, read_family
from cutwater.state.rocksdb_family import Family
from cutwater.state.rocksdb_keys import KeyBytes, stored_keys, stored_keys_in_order
from cutwater.state.rocksdb_layout import Content, Layout
from cutwater.state.stored import Form, StoredFile, StoredTable

HALVES = (slice(0, 250), slice(250, 500))
TUNING = Tuning(1 << 20, 1 << 20, "lz4")


def layout_by(key: pa.DataType) -> Layout:
    schema = pa.schema([("k", key), ("n", pa.int64()), ("key_group", pa.int32())])
    return Layout(Content.BY_KEY, schema, ("k",))


def rows_of(layout: Layout, numbers: Any) -> pa.RecordBatch:
    keys = pa.array(numbers).cast(layout.schema.field("k").type)
    groups = pa.array(key_groups(hash_arrays([keys], len(keys)), 128))
    return pa.RecordBatch.from_arrays([keys, pa.array(numbers), groups], schema=layout.schema)


def held(family: Family, layout: Layout) -> list[int]:
    return [n for batch in layout.batches(family.cut()) for n in batch.column("n").to_pylist()]


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    database = Database("uid", str(tmp_path / "db"), TUNING)
    yield database.family("n")
    database.close()


@pytest.mark.parametrize("key", [pa.int64(), pa.string()], ids=str)
def test_rows_in_any_order_and_in_several_files_are_all_there(key: pa.DataType, family: Family) -> None:
    layout = layout_by(key)
    numbers = np.random.default_rng(3).permutation(200_000)
    batches = [rows_of(layout, part).select(["key_group", "n", "k"]) for part in np.array_split(numbers, 20)]
    assert ingest_rows(family, layout, [batches[0].slice(0, 0), *batches], 1) == 200_000
    assert family.about > 100_000
    assert sorted(held(family, layout)) == list(range(200_000))


@pytest.mark.parametrize("key", [pa.int64(), pa.string()], ids=str)
def test_rows_that_are_in_order_are_not_sorted_again(key: pa.DataType, family: Family) -> None:
    layout = layout_by(key)
    ingest_rows(family, layout, [rows_of(layout, np.arange(20_000))], 1 << 20)
    ordered = pa.concat_batches(list(layout.batches(family.cut())))  # type: ignore[attr-defined]
    groups = ordered.column("key_group").to_numpy()
    assert KeyBytes.of([ordered.column("k")], groups).order() is None
    swapped = ordered.take(pa.array([1, 0, *range(2, 20_000)]))
    order = KeyBytes.of([swapped.column("k")], swapped.column("key_group").to_numpy()).order()
    assert order is not None
    assert order.tolist() == [1, 0, *range(2, 20_000)]
    assert KeyBytes.of([ordered.column("k").slice(0, 0)], groups[:0]).order() is None


def test_no_rows_leave_a_family_empty(family: Family) -> None:
    layout = layout_by(pa.int64())
    assert ingest_rows(family, layout, [rows_of(layout, np.arange(0))], 1 << 20) == 0
    assert ingest_entries(family, iter(())) == 0
    assert family.is_empty


@pytest.mark.parametrize("rows", [0, 1, 29, 30, 31, 60, 100])
def test_entries_of_another_database_are_copied_in_files_of_bounded_size(
    rows: int, tmp_path: Path, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocksdb_bulk, "COPIED_ROWS", 30)
    layout = layout_by(pa.int64())
    other = Database("uid", str(tmp_path / "other"), TUNING)
    ingest_rows(other.family("n"), layout, [rows_of(layout, np.arange(rows))], 1)
    other.close()
    assert ingest_entries(family, read_family(str(tmp_path / "other"), "n", b"", b"\xff", 10)) == rows
    assert sorted(held(family, layout)) == list(range(rows))


@pytest.mark.parametrize("at_once", [1, 3, 5, 100])
def test_of_another_database_what_is_within_bounds_is_read_and_nothing_else(at_once: int, tmp_path: Path) -> None:
    other = Database("uid", str(tmp_path / "other"), TUNING)
    other.family("n").ingest([([bytes([i]) for i in range(10)], [b"v"] * 10)])
    other.close()

    def read(first: int, end: int) -> list[int]:
        lists = list(read_family(str(tmp_path / "other"), "n", bytes([first]), bytes([end]), at_once))
        assert all(0 < len(keys) == len(values) <= at_once for keys, values in lists)
        return [key[0] for keys, _ in lists for key in keys]

    for first, end in [(0, 10), (0, 255), (2, 5), (4, 4), (9, 10), (10, 20), (0, 1)]:
        assert read(first, end) == [key for key in range(10) if first <= key < end]


def part(state: str, files: str, size: int, first: int, last: int, form: Form = Form.ROCKSDB) -> StoredTable:
    return StoredTable(state, (StoredFile(files, size, "c"),), 1, first, last, form, {"layout": "same"})


def test_the_largest_database_that_is_wholly_ours_is_gone_on_with() -> None:
    a, b = part("s", "a", 5, 0, 31), part("s", "b", 9, 32, 63)
    timers, wide = part("timers", "b", 9, 0, -1), part("s", "c", 99, 60, 90)
    databases = stored_databases([a, b, timers, wide])
    assert databases == [(a,), (b, timers), (wide,)]
    assert with_base(databases, KeyGroupRange(0, 63)) == ((b, timers), [(a,), (wide,)])
    assert with_base(databases, KeyGroupRange(0, 40)) == ((a,), [(b, timers), (wide,)])
    assert with_base(databases, KeyGroupRange(61, 62)) == ((), databases)
    assert with_base([], KeyGroupRange(0, 127)) == ((), [])


def test_parts_that_are_rows_or_in_other_columns_are_not_taken_as_they_are() -> None:
    a = part("s", "a", 5, 0, 31)
    assert stored_databases([a, part("s", "b", 5, 32, 63, Form.ROWS)]) == []
    other = StoredTable("s", (StoredFile("b", 5, "c"),), 1, 32, 63, Form.ROCKSDB, {"layout": "other"})
    assert stored_databases([a, other]) == []
    assert stored_databases([]) == []


@pytest.mark.parametrize("columns", [["k"], ["k", "k"], ["t"]])
def test_keys_of_panes_are_ordered_as_their_bytes_are(columns: list[str]) -> None:
    random = np.random.default_rng(4)
    numbers = random.integers(-(1 << 40), 1 << 40, 500)
    panes, groups = random.integers(-3, 3, 500), random.integers(0, 300, 500).astype(np.int32)
    of = {"k": pa.array(numbers), "t": pa.array([str(number)[:3] for number in numbers])}
    keys = [of[name] for name in columns]
    order = KeyBytes.of(keys, groups, panes).order()
    assert order is not None
    as_bytes = stored_keys(keys, groups, panes)
    assert order.tolist() == sorted(range(500), key=as_bytes.__getitem__)


@pytest.mark.parametrize("columns", [[], ["k"], ["k", "k"], ["t"]], ids=str)
def test_of_equal_keys_the_one_with_the_lower_number_is_first(columns: list[str]) -> None:
    random = np.random.default_rng(5)
    keys, panes = random.integers(0, 20, 500), random.integers(-1, 1, 500)
    groups = (keys % 3).astype(np.int32)
    of = {"k": pa.array(keys), "t": pa.array([f"{key * 7}" for key in keys])}
    chosen = [of[name] for name in columns]
    numbers = (7 << 32) - 250 + np.arange(500)
    numbered, order = stored_keys_in_order(chosen, groups, panes, numbers)
    assert numbered == sorted(numbered)
    bare = stored_keys(chosen, groups, panes)
    assert numbered == [bare[i] + int(numbers[i]).to_bytes(8, "big") for i in order.tolist()]
    halves = [KeyBytes.of([key[part] for key in chosen], groups[part], panes[part], numbers[part]) for part in HALVES]
    both = KeyBytes.joined(halves)
    assert both.apart() == stored_keys(chosen, groups, panes, numbers)
    assert both.sorted().tolist() == order.tolist()


@pytest.mark.parametrize(("size", "many", "are_read"), [(0, True, 1), (799, True, 1), (800, True, 2), (2400, False, 3)])
def test_no_more_batches_are_read_than_tell_how_many_there_are(size: int, many: bool, are_read: int) -> None:
    wanted = [pa.record_batch([pa.array(np.arange(100) + start)], names=["n"]) for start in (0, 100, 200)]
    left = iter(wanted)
    found, batches = are_more_than(left, size)
    assert (found, len(wanted) - length_hint(left)) == (many, are_read)
    assert list(batches) == wanted
