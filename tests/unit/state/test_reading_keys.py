"""Of a window some keys are read without the others, wherever they are: in rows as they came, in a table, in files."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state import memory_panes, rocksdb_panes
from cutwater.state.backend import KeyedStateStore
from cutwater.state.tables import Column, Merge, PaneTable, ReadsKeys

KEYS = pa.schema([("k", pa.string()), ("n", pa.int64())])
COLUMNS = [(Column("sum", pa.int64(), nullable=False), Merge.ADD), (Column("last", pa.int64()), Merge.LAST)]
SCHEMA = pa.schema([*KEYS, *(column.field for column, _ in COLUMNS)])
PANES = (-1000, 0, 1000)
MANY = 600


def key(number: int) -> dict[str, Any]:
    return {"k": None if number % 7 == 3 else f"key {number}", "n": number}


@pytest.fixture(params=["memory", "memory-incremental", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeyedStateStore]:
    backend = {
        "memory": cw.Memory(),
        "memory-incremental": cw.Memory(incremental=True),
        "rocksdb": cw.RocksDB(cache="16KB", local_directories=[str(tmp_path)]),
    }[request.param]
    opened = backend.open("w", KeyGroupRange(0, 127), 128)
    yield opened
    opened.close()


@pytest.fixture(params=[64, 4096])
def _promoted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_panes, "PROMOTED_ROWS", request.param)
    monkeypatch.setattr(rocksdb_panes, "KEY_COSTS", 0)
    monkeypatch.setattr(rocksdb_panes, "KEYS_A_STEP", 16)


def filled(store: KeyedStateStore) -> PaneTable:
    table = store.panes("windows", KEYS, "start", COLUMNS)
    chosen = random.Random(5)
    for step in range(60):
        numbers = chosen.sample(range(MANY), 40)
        rows = [key(number) | {"sum": number, "last": None if step % 9 == 0 else step} for number in numbers]
        table.merge(chosen.choice(PANES), pa.RecordBatch.from_pylist(rows, SCHEMA))
    return table


def rows_of(batches: Iterator[pa.RecordBatch]) -> dict[int, tuple[Any, ...]]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert set(Counter(row["n"] for row in rows).values()) <= {1}
    return {row["n"]: tuple(row.values()) for row in rows}


@pytest.mark.usefixtures("_promoted")
@pytest.mark.parametrize("panes", [(0,), PANES, (5000,)])
@pytest.mark.parametrize("asked", [(3, 4, 5), (599, 601), tuple(range(0, 100, 2))])
def test_they_are_those_that_are_read_with_all_others(
    store: KeyedStateStore, panes: tuple[int, ...], asked: tuple[int, ...]
) -> None:
    table = filled(store)
    assert isinstance(table, ReadsKeys)
    keys = pa.RecordBatch.from_pylist([key(number) for number in asked], KEYS)
    everything = rows_of(table.read(panes))
    found = rows_of(table.read_keys(panes, keys))
    assert found == {number: row for number, row in everything.items() if number in asked}


@pytest.mark.usefixtures("_promoted")
def test_where_most_are_asked_for_all_may_be_read(store: KeyedStateStore) -> None:
    table = filled(store)
    assert isinstance(table, ReadsKeys)
    keys = pa.RecordBatch.from_pylist([key(number) for number in range(MANY)], KEYS)
    assert rows_of(table.read_keys(PANES, keys)) == rows_of(table.read(PANES))
