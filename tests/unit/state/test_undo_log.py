"""What is put aside for snapshots that are read while the loop writes on, and when it is let go."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cutwater.state import memory_aggregates, undo_log
from cutwater.state.accumulator_kernels import ENTRY_HEAD_BYTES, HEAD_BYTES
from cutwater.state.index_kernels import CHUNK_ROWS
from cutwater.state.memory_aggregates import MemoryAggregateTable
from cutwater.state.tables import Column, Merge, Update

KEY = pa.schema([("k", pa.int64())])


def counting_table(keys: int, monkeypatch: pytest.MonkeyPatch) -> MemoryAggregateTable:
    """Every key counted once. No chunk is copied: all that changes is put aside."""
    monkeypatch.setattr(memory_aggregates, "COPIED_CHUNKS", 0)
    table = MemoryAggregateTable("uid", "state", KEY, [Column("n", pa.int64())], 128)
    count(table, np.arange(keys))
    return table


def count(table: MemoryAggregateTable, keys: Any) -> None:
    table.update(table.locate(pa.record_batch([pa.array(keys)], schema=KEY)), [Update(0, Merge.COUNT)])


def counts(frozen: Any) -> list[int]:
    return [n for batch in frozen.batches() for n in batch.column("n").to_pylist()]


def test_the_log_is_bounded_though_there_is_always_a_snapshot_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = 4 * CHUNK_ROWS
    table = counting_table(keys, monkeypatch)
    frozen = [table.freeze()]
    sizes = []
    for turn in range(2, 42):
        count(table, np.arange(keys))
        frozen.append(table.freeze())
        assert counts(frozen[0]) == [turn - 1] * keys
        frozen.pop(0).release()
        sizes.append(table._undo.bytes)
    assert max(sizes) < 8 * undo_log.BLOCK_BYTES
    frozen[0].release()
    count(table, [0])
    assert table._undo.bytes == 0


def test_room_in_the_log_is_not_used_again_while_a_snapshot_may_stop_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new entry where the last one of its chunk was at the freeze: the reader would go no further."""
    monkeypatch.setattr(undo_log, "BLOCK_BYTES", ENTRY_HEAD_BYTES + HEAD_BYTES + 8)
    table = counting_table(2 * CHUNK_ROWS, monkeypatch)
    first = table.freeze()
    for key in (0, CHUNK_ROWS):
        count(table, [key])
    second = table.freeze()
    first.release()
    for key in (1, 2, 3):
        count(table, [key])
    read = counts(second)
    assert (read[:4], sum(read)) == ([2, 1, 1, 1], 2 * CHUNK_ROWS + 2)
    third = table.freeze()
    second.release()
    for key in (1, 2, 3):
        count(table, [key])
    assert counts(third)[:4] == [2, 2, 2, 2]
