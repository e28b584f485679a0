"""What was stored becomes a table again: in one go, and not before the table is there."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.errors import RestoreError
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.index_kernels import CHUNK_ROWS
from cutwater.state.memory_aggregates import MemoryAggregateTable
from cutwater.state.tables import Column, Merge, Update

ALL = KeyGroupRange(0, 127)
COLUMNS = (Column("n", pa.int64(), nullable=False), Column("hi", pa.float64()), Column("text", pa.string()))
NUMBERS = pa.schema([("k", pa.int64())])
NUMBERS_AND_TEXTS = pa.schema([("k", pa.int64()), ("s", pa.string())])


def table_of(keys: pa.Schema) -> MemoryAggregateTable:
    return MemoryAggregateTable("u", "n", keys, COLUMNS, 128)


def keys_of(numbers: list[int | None], schema: pa.Schema) -> pa.RecordBatch:
    texts = [None if number is None or number % 7 == 0 else f"key {number}" for number in numbers]
    columns = [pa.array(numbers, pa.int64()), pa.array(texts)]
    return pa.RecordBatch.from_arrays(columns[: len(schema)], schema=schema)


def count(table: MemoryAggregateTable, numbers: list[int | None], schema: pa.Schema) -> None:
    """Texts and floats of some are null, and some texts are empty."""
    highest = pa.array([None if number is None or number % 3 == 0 else number / 2 for number in numbers])
    texts = pa.array([None if number is None or number % 5 == 0 else "x" * (number % 4) for number in numbers])
    table.update(
        table.locate(keys_of(numbers, schema)),
        [Update(0, Merge.COUNT), Update(1, Merge.MAX, highest), Update(2, Merge.LAST, texts)],
    )


def content(table: MemoryAggregateTable) -> list[dict[str, Any]]:
    frozen = table.freeze()
    rows = [row for batch in frozen.batches() for row in batch.to_pylist()]
    frozen.release()
    return rows


def stored(table: MemoryAggregateTable, rows: int) -> Iterator[pa.RecordBatch]:
    """In batches of so many rows."""
    for batch in table.freeze().batches():
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


@pytest.mark.parametrize("schema", [NUMBERS, NUMBERS_AND_TEXTS], ids=["numbers", "several columns"])
@pytest.mark.parametrize("rows", [1000, CHUNK_ROWS, 10_001])
def test_a_restored_table_is_what_it_was_and_goes_on(schema: pa.Schema, rows: int) -> None:
    before, again = table_of(schema), table_of(schema)
    numbers: list[int | None] = [None, *np.random.default_rng(1).permutation(30_000).tolist()]
    count(before, numbers, schema)
    again.restore(stored(before, rows))
    assert content(again) == content(before)
    assert again.find(keys_of(numbers, schema)).tolist() == list(range(30_001))
    for table in (before, again):
        count(table, [None, *range(20_000, 90_000)], schema)
    assert content(again) == content(before)


@pytest.mark.parametrize("schema", [NUMBERS, NUMBERS_AND_TEXTS], ids=["numbers", "several columns"])
def test_parts_are_restored_one_after_the_other(schema: pa.Schema) -> None:
    parts = [table_of(schema) for _ in range(3)]
    again = table_of(schema)
    for number, part in enumerate(parts):
        count(part, list(range(number * 5000, (number + 1) * 5000)), schema)
        again.restore(stored(part, 4000))
    assert content(again) == [row for part in parts for row in content(part)]
    count(again, list(range(15_000)), schema)
    assert len(again) == 15_000


@pytest.mark.parametrize("schema", [NUMBERS, NUMBERS_AND_TEXTS], ids=["numbers", "several columns"])
@pytest.mark.parametrize("key", [5, None])
def test_a_key_that_is_stored_twice_is_told(schema: pa.Schema, key: int | None) -> None:
    before, again = table_of(schema), table_of(schema)
    count(before, [1, 2, key], schema)
    batches = list(stored(before, 100))
    with pytest.raises(RestoreError, match="a key twice"):
        again.restore([*batches, *batches])


@pytest.mark.parametrize("backend", [cw.Memory(), cw.Memory(incremental=True), cw.RocksDB()], ids=repr)
def test_what_is_restored_is_not_read_before_its_table_is_there(backend: cw.StateBackend) -> None:
    """All of an operator's state would be in memory at once, or on the disk twice."""
    before = table_of(NUMBERS)
    count(before, list(range(20_000)), NUMBERS)
    taken = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for batch in stored(before, 1000):
            taken += 1
            yield batch

    store = backend.open("u", ALL, 128)
    store.restore("n", batches())
    assert taken == 1, "whether there is anything is known"
    table = store.aggregates("n", NUMBERS, COLUMNS)
    assert (taken, len(table)) == (20, 20_000)
    touched = table.locate(keys_of(list(range(20_000)), NUMBERS))
    assert table.read(touched.rows)[2].to_pylist() == [row["text"] for row in content(before)]
    store.close()
