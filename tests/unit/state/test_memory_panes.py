"""Panes of the Memory backend: merged by key, whether few rows or many, before and after a restore, under a snapshot."""

import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any
from weakref import ref

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.flow.hashing import hash_columns, key_groups
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state import memory_panes, restored_pane
from cutwater.state.changes import header_of
from cutwater.state.frozen import FrozenTable, TableRows
from cutwater.state.memory import Memory, MemoryStore
from cutwater.state.memory_aggregates import MemoryAggregateTable
from cutwater.state.memory_panes import MemoryPanes, PanesMark
from cutwater.state.tables import Column, Merge, PaneTable
from cutwater.state.tracked_panes import TrackedPanes

KEYS = pa.schema([("k", pa.string())])
COLUMNS = [(Column("n", pa.int64(), nullable=False), Merge.ADD), (Column("hi", pa.int64()), Merge.MAX)]
SCHEMA = pa.schema([*KEYS, *(column.field for column, _ in COLUMNS)])
ROWS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", None]), st.integers(0, 9)), max_size=20)


def store(groups: tuple[int, int] = (0, 127)) -> MemoryStore:
    return Memory().open("w1", KeyGroupRange(*groups), 128)


def table_of(kept: MemoryStore) -> PaneTable:
    return kept.panes("windows", KEYS, "window_start", COLUMNS)


def partial(*rows: tuple[str | None, int, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def content(table: PaneTable, *panes: int) -> dict[Any, tuple[int, int]]:
    rows = [row for batch in table.read(panes) for row in batch.to_pylist()]
    found = {row["k"]: (row["n"], row["hi"]) for row in rows}
    assert len(found) == len(rows), "one row for each key"
    return found


@pytest.fixture(params=[0, 3, 4096])
def _promoted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """From how many rows on a pane has an index."""
    monkeypatch.setattr(memory_panes, "PROMOTED_ROWS", request.param)
    monkeypatch.setattr(memory_panes, "MOST_BATCHES", 3)


def merged(rows: Iterable[tuple[int, str | None, int]], *panes: int) -> dict[Any, tuple[int, int]]:
    result: dict[Any, tuple[int, int]] = {}
    for pane, key, value in rows:
        if pane in panes:
            n, hi = result.get(key, (0, 0))
            result[key] = (n + 1, max(hi, value))
    return result


@pytest.mark.usefixtures("_promoted")
@given(ROWS, ROWS)
def test_rows_are_merged_by_key_over_any_panes_also_after_a_restore_and_under_a_snapshot(
    before: list[tuple[int, str | None, int]], later: list[tuple[int, str | None, int]]
) -> None:
    first = store()
    table = table_of(first)
    for pane, key, value in before:
        table.merge(pane, partial((key, 1, value)))
    (frozen,) = first.freeze()
    for pane, key, value in later:
        table.merge(pane, partial((key, 1, value)))
    for panes in [(0,), (1,), (0, 1, 2), (7,)]:
        assert content(table, *panes) == merged([*before, *later], *panes)
    stored = list(frozen.batches())
    frozen.release()
    second = store()
    second.restore("windows", stored)
    again = table_of(second)
    assert set(again.panes()) == {pane for pane, _, _ in before}
    for panes in [(0,), (1,), (0, 1, 2)]:
        assert content(again, *panes) == merged(before, *panes)


@pytest.mark.usefixtures("_promoted")
def test_a_restore_takes_the_key_groups_of_its_own_range() -> None:
    first = store()
    table = table_of(first)
    keys = [f"key{n}" for n in range(50)]
    table.merge(5, partial(*((key, 1, 1) for key in keys)))
    (frozen,) = first.freeze()
    stored = list(frozen.batches())
    found: list[str] = []
    for groups in ((0, 63), (64, 127)):
        part = store(groups)
        part.restore("windows", stored)
        own = content(table_of(part), 5)
        found += own
        of = key_groups(hash_columns(partial(*((key, 1, 1) for key in own)), ["k"]), 128)
        assert all(groups[0] <= group <= groups[1] for group in of)
    assert sorted(found) == sorted(keys)


def test_a_dropped_pane_is_gone_but_not_from_a_snapshot_that_has_it() -> None:
    kept = store()
    table = table_of(kept)
    table.merge(5, partial(("a", 1, 1)))
    (frozen,) = kept.freeze()
    table.drop(5)
    table.drop(6)
    assert list(table.panes()) == [] and content(table, 5) == {}
    assert sum(batch.num_rows for batch in frozen.batches()) == 1


Counts = dict[int, dict[str, int]]
"""By pane and key."""


def counts_in(batches: Iterable[pa.RecordBatch]) -> Counts:
    found: Counts = {}
    for row in (row for batch in batches for row in batch.to_pylist()):
        keys = found.setdefault(row["window_start"], {})
        keys[row["k"]] = keys.get(row["k"], 0) + row["n"]
    return found


class Reading:
    """A frozen table, or what changed in it since there was ``before``, read while its table goes on."""

    def __init__(self, frozen: FrozenTable, rows: TableRows, before: Counts, then: Counts) -> None:
        self._frozen = frozen
        self._rows = rows
        self._batches = rows.batches()
        self._read: list[pa.RecordBatch] = []
        self._before = before
        self._then = then

    def go_on(self) -> None:
        self._read.extend(batch for batch in [next(self._batches, None)] if batch is not None)

    def end(self) -> None:
        self._read.extend(self._batches)
        dropped = header_of(self._rows.schema).dropped
        found = {pane: dict(keys) for pane, keys in self._before.items() if pane not in dropped}
        for pane, keys in counts_in(self._read).items():
            found.setdefault(pane, {}).update(keys)
        assert found == self._then
        self._frozen.release()


class Freezes:
    """Of one table, which may know what changed since a freeze of which all was read."""

    def __init__(self, table: MemoryPanes) -> None:
        self._table = table
        self._marks: list[tuple[PanesMark, Counts]] = []

    def reading(self, then: Counts) -> Reading:
        frozen = self._table.freeze()
        if not isinstance(self._table, TrackedPanes):
            return Reading(frozen, frozen, {}, then)
        known = [(mark, before) for mark, before in self._marks if mark.extents is not None]
        mark, before = known[-1] if known else (PanesMark(0, {}), {})
        changes = self._table.changes(mark, frozen)
        self._marks.append((self._table.mark(), then))
        assert changes is not None
        return Reading(frozen, changes, before, then)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", [MemoryPanes, TrackedPanes])
def test_freezes_that_are_read_while_panes_grow_and_go_hold_what_there_was(
    kind: type[MemoryPanes], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_panes, "PROMOTED_ROWS", 5)
    monkeypatch.setattr(memory_panes, "MOST_BATCHES", 3)
    random = np.random.default_rng(seed)
    table = kind("w1", "windows", KEYS, "window_start", COLUMNS, 128)
    freezes, readings = Freezes(table), list[Reading]()
    model: Counts = {}
    tables: dict[int, MemoryAggregateTable] = {}
    for _ in range(400):
        pane = int(random.integers(8))
        match random.choice(["merge", "drop", "freeze", "read", "end"], p=[0.5, 0.1, 0.1, 0.2, 0.1]):
            case "merge":
                key = str(random.choice(["a", "b", "c"]))
                table.merge(pane, partial((key, 1, 0)))
                keys = model.setdefault(pane, {})
                keys[key] = keys.get(key, 0) + 1
                tables.update({id(large.table): large.table for large in table._large.values()})
            case "drop":
                table.drop(pane)
                model.pop(pane, None)
            case "freeze":
                readings.append(freezes.reading(deepcopy(model)))
            case "read" if readings:
                readings[int(random.integers(len(readings)))].go_on()
            case "end" if readings:
                readings.pop(int(random.integers(len(readings)))).end()
    for reading in readings:
        reading.end()
    assert tables and not any(map(is_frozen, tables.values()))
    assert counts_in(table.freeze().batches()) == model


def is_frozen(table: MemoryAggregateTable) -> bool:
    return table._snapshots.latest > 0 or any(column._frozen for column in table._objects.values())


def test_a_freeze_that_another_thread_reads_holds_what_there_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_panes, "PROMOTED_ROWS", 2)
    table = MemoryPanes("w1", "windows", KEYS, "window_start", COLUMNS, 128)
    for pane in range(200):
        table.merge(pane, partial(*[("a", 1, 0)] * (1 + pane % 3)))
    frozen = table.freeze()
    read: list[pa.RecordBatch] = []
    reader = threading.Thread(target=lambda: read.extend(frozen.batches()))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        reader.start()
        number = 0
        while reader.is_alive():
            table.drop(number % 199)
            table.merge(number % 201, partial(*[("a", 1, 0)] * (1 + number % 2)))
            number += 1
    finally:
        sys.setswitchinterval(interval)
        reader.join()
    assert counts_in(read) == {pane: {"a": 1 + pane % 3} for pane in range(200)}


def test_freezes_under_way_hold_what_there_was_while_the_loop_reads_the_same_panes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Large panes are frozen by whoever comes to them first, and once more for as long as the loop reads them."""
    monkeypatch.setattr(memory_panes, "PROMOTED_ROWS", 2)
    columns = [(Column("n", pa.decimal128(20, 0)), Merge.ADD), (Column("t", pa.string()), Merge.MAX)]
    schema = pa.schema([*KEYS, *(column.field for column, _ in columns)])
    panes = 40
    table = MemoryPanes("w1", "windows", KEYS, "window_start", columns, 128)
    random = np.random.default_rng(1)
    model: Counts = {}
    tables: dict[int, MemoryAggregateTable] = {}

    def merge(pane: int) -> None:
        keys = random.choice(["a", "b", "c"], int(random.integers(1, 4))).tolist()
        table.merge(pane, pa.RecordBatch.from_pylist([{"k": key, "n": 1, "t": key * 9} for key in keys], schema))
        tables.update({id(large.table): large.table for large in table._large.values()})
        for key in keys:
            model.setdefault(pane, {}).setdefault(key, 0)
            model[pane][key] += 1

    def read(frozen: FrozenTable) -> Counts:
        try:
            return counts_in(frozen.batches())
        finally:
            frozen.release()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(3) as others:
            wanted, found = [], []
            for number in range(20 * panes):
                pane = int(random.integers(panes))
                merge(pane)
                if number % 30 == 20:
                    wanted.append(deepcopy(model))
                    found.append(others.submit(read, table.freeze()))
                again = int(random.integers(panes))
                rows = [row for batch in table.read([again]) for row in batch.to_pylist()]
                assert {row["k"]: row["n"] for row in rows} == model.get(again, {})
                if number % 5 == 0:
                    table.drop(pane)
                    model.pop(pane)
    finally:
        sys.setswitchinterval(interval)
    assert [each.result() for each in found] == wanted
    assert not any(map(is_frozen, tables.values()))


def test_what_is_dropped_stays_only_as_long_as_a_freeze_is_read() -> None:
    table = MemoryPanes("w1", "windows", KEYS, "window_start", COLUMNS, 128)
    for pane in range(3):
        table.merge(pane, partial(("a", 1, 0)))
    rows = [ref(table._small[pane].rows[0]) for pane in range(3)]
    earlier, later = table.freeze(), table.freeze()
    table.drop(0)
    later.release()
    table.drop(1)
    assert None not in [each() for each in rows]
    earlier.release()
    table.drop(2)
    assert [each() for each in rows] == [None] * 3


def test_what_a_freeze_held_of_large_panes_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_panes, "PROMOTED_ROWS", 0)
    table = MemoryPanes("w1", "windows", KEYS, "window_start", COLUMNS, 128)
    table.merge(0, partial(("a", 1, 0)))
    words = ref(table._large[0].table._words.arrays[0])
    frozen = table.freeze()
    table.drop(0)
    assert words() is not None
    frozen.release()
    assert words() is None


@pytest.mark.parametrize("kind", [MemoryPanes, TrackedPanes])
def test_a_large_pane_is_restored_without_a_look_for_each_key(
    kind: type[MemoryPanes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_panes, "PROMOTED_ROWS", 5)
    old, again = (kind("w1", "windows", KEYS, "window_start", COLUMNS, 128) for _ in range(2))
    for start in range(0, 50, 10):
        old.merge(7, partial(*((f"key{n}", n, n) for n in range(start, start + 10))))
    with monkeypatch.context() as looking:
        looking.setattr(MemoryAggregateTable, "locate", lambda *_: pytest.fail("one key after the other"))
        again.restore(piece for batch in old.freeze().batches() for piece in (batch.slice(0, 20), batch.slice(20)))
    for table in (old, again):
        table.merge(7, partial(("key3", 1, 100), ("new", 1, 1)))
    assert content(again, 7) == content(old, 7)


@pytest.mark.parametrize("key_type", [pa.int64(), pa.string()], ids=str)
@pytest.mark.parametrize("seed", range(8))
def test_restored_rows_are_merged_in_order_wherever_a_key_comes_again(
    seed: int, key_type: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As small panes and RocksDB give them; null is a key as well."""
    random = np.random.default_rng(seed)
    columns = [
        (Column("sum", pa.int64(), nullable=False), Merge.ADD),
        (Column("first", pa.int64()), Merge.FIRST),
        (Column("last", pa.decimal128(9, 0)), Merge.LAST),
    ]
    keys = pa.schema([("k", key_type)])
    old, again = (TrackedPanes("w1", "windows", keys, "window_start", columns, 128) for _ in range(2))
    schema = old.partial_schema
    for number in range(60):
        some = random.integers(0, int(random.choice([10, 1000])), int(random.integers(1, 8))).tolist()
        names = [None if n == 0 else n if key_type == pa.int64() else f"key{n}" for n in some]
        rows = [{"k": name, "sum": 1, "first": number, "last": number} for name in names]
        old.merge(int(random.integers(3)), pa.RecordBatch.from_pylist(rows, schema))
    stored = list(old.freeze().batches())
    monkeypatch.setattr(memory_panes, "PROMOTED_ROWS", 3)
    monkeypatch.setattr(restored_pane, "FIRST_LOOK_ROWS", int(random.choice([5, 20, 1000])))
    again.restore(stored)
    assert again._large
    for panes in ([0], [1], [2], [0, 1, 2]):
        found, wanted = (
            sorted((row for batch in table.read(panes) for row in batch.to_pylist()), key=lambda row: str(row["k"]))
            for table in (again, old)
        )
        assert found == wanted
    assert dict(again.restored_mark().extents or {}) == {pane: kept.serial for pane, kept in again._large.items()}
