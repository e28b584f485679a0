"""What was restored is held no longer than somebody may ask for it."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from cutwater.state import restored_rows
from cutwater.state.frozen import FrozenTable
from cutwater.state.memory_rows import MemoryRowTable
from cutwater.state.row_layers import RowForm
from cutwater.state.tracked_rows import TrackedRowTable

ROWS, CHUNKS = 20_000, 20
KINDS = [MemoryRowTable, TrackedRowTable]
KEYS = pa.schema([("user", pa.string())])


def opened(kind: type[MemoryRowTable] = MemoryRowTable, value: pa.DataType | None = None) -> MemoryRowTable:
    return kind(RowForm.of("uid", "seen", KEYS, value or pa.list_(pa.string()), 128))


def value_of(number: int) -> list[str]:
    return [str(number), "x" * 100]


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> list[pa.RecordBatch]:
    """Each becomes a chunk."""
    monkeypatch.setattr(restored_rows, "CHUNK_BYTES", 1)
    table = opened()
    for number in range(ROWS):
        table.put(str(number), value_of(number))
    whole = pa.Table.from_batches(table.freeze().batches()).combine_chunks()
    return whole.to_batches(max_chunksize=ROWS // CHUNKS)


def delete(table: MemoryRowTable, keys: list[str]) -> None:
    for key in keys:
        table.delete(key)


def read_each(table: MemoryRowTable, keys: list[str]) -> None:
    for key in keys:
        assert table.get(key) is not None


def settle(table: MemoryRowTable) -> None:
    table.freeze().release()
    for _ in range(2 * CHUNKS):
        table.tend()


def content(batches: Iterable[pa.RecordBatch]) -> dict[str, Any]:
    return {row["user"]: row["seen"] for batch in batches for row in batch.to_pylist()}


@pytest.mark.parametrize("done", [delete, read_each, MemoryRowTable.expect])
@pytest.mark.parametrize("kind", KINDS)
def test_what_waits_no_more_is_let_go_of_though_others_wait(
    kind: type[MemoryRowTable], done: Callable[[MemoryRowTable, list[str]], None], stored: list[pa.RecordBatch]
) -> None:
    before = pa.total_allocated_bytes()
    table = opened(kind)
    table.restore(stored)
    whole = pa.total_allocated_bytes() - before
    assert whole > 100 * ROWS
    done(table, [str(number) for number in range(ROWS) if number % 5])
    settle(table)
    assert pa.total_allocated_bytes() - before < whole / 4
    done(table, [str(number) for number in range(0, ROWS, 5) if number != 7000])
    settle(table)
    assert pa.total_allocated_bytes() - before < whole / 100
    assert table._restored is not None
    expected = {"7000": value_of(7000)} if done is delete else {str(n): value_of(n) for n in range(ROWS)}
    assert content(table.freeze().batches()) == dict(table.items()) == expected
    assert table.get("7000") == value_of(7000)
    settle(table)
    assert pa.total_allocated_bytes() - before < whole / 100


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_that_have_few_rows_left_at_the_same_time_are_let_go_of_one_after_the_other(
    kind: type[MemoryRowTable], stored: list[pa.RecordBatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once would take as long as all of them are large."""
    monkeypatch.setattr(restored_rows, "ROWS_LET_GO", 2 * ROWS // CHUNKS)
    monkeypatch.setattr(restored_rows, "ROWS_OF_ANY_CHUNK", 0)
    table = opened(kind)
    table.restore(stored)
    table.expect([str(number) for number in range(ROWS) if number % 5 or number < ROWS // 2])
    assert table._restored is not None
    kept = [_rows_held(table)]
    for _ in range(CHUNKS // 2):
        table.tend()
        kept.append(_rows_held(table))
    assert all(sum(old != new for old, new in zip(a, b, strict=True)) == 2 for a, b in pairwise(kept))
    assert sorted(kept[-1]) == [0] * (CHUNKS // 2) + [ROWS // CHUNKS // 5] * (CHUNKS // 2)


def _rows_held(table: MemoryRowTable) -> list[int]:
    assert table._restored is not None
    held = {chunk.first: chunk.values.num_rows for chunk in table._restored.held.chunks}
    return [held.get(first, 0) for first in range(0, ROWS, ROWS // CHUNKS)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_reads_what_it_froze_whatever_is_let_go_of_meanwhile(
    kind: type[MemoryRowTable], stored: list[pa.RecordBatch]
) -> None:
    table = opened(kind)
    table.restore(stored)
    for step in (5, 3):
        frozen: FrozenTable = table.freeze()
        batches = frozen.batches()
        found = content([next(batches)])
        frozen.release()  # its checkpoint was aborted: nobody waits for it any more
        table.expect([str(number) for number in range(ROWS) if number % step])
        for _ in range(2 * CHUNKS):
            table.tend()
        assert found | content(batches) == {str(number): value_of(number) for number in range(ROWS)}


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_was_restored_is_looked_at_whatever_is_let_go_of_meanwhile(
    kind: type[MemoryRowTable], stored: list[pa.RecordBatch]
) -> None:
    table = opened(kind)
    table.restore(stored)
    parts = table.restored(300)
    seen = [next(parts)]
    table.expect([str(number) for number in range(ROWS)])
    settle(table)
    assert table._restored is None
    seen += parts
    assert [key for keys, _ in seen for key in keys] == [str(number) for number in range(ROWS)]
    assert [value for _, values in seen for value in values.to_pylist()] == [value_of(number) for number in range(ROWS)]


@pytest.mark.parametrize(
    ("data_type", "value"),
    [
        (pa.int64(), 1),
        (pa.bool_(), True),
        (pa.string(), "x" * 100),
        (pa.list_(pa.string()), ["x" * 100]),
        (pa.map_(pa.string(), pa.int64()), {"x" * 100: 1}),
        (pa.struct([("a", pa.string()), ("b", pa.list_(pa.int64()))]), ("x" * 100, [1, 2])),
    ],
    ids=str,
)
def test_a_few_rows_of_a_large_batch_do_not_hold_all_of_it(data_type: pa.DataType, value: Any) -> None:
    table = opened(value=data_type)
    for number in range(4000):
        table.put(str(number), value)
    [batch] = table.freeze().batches()
    before = pa.total_allocated_bytes()
    restored = opened(value=data_type)
    restored.restore([batch.slice(1000, 10)])
    assert restored._restored is not None
    [chunk] = restored._restored.held.chunks
    assert chunk.values.get_total_buffer_size() < 4000
    assert 0 < pa.total_allocated_bytes() - before < 8000
