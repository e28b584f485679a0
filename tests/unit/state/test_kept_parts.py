"""A few rows that are kept of each of many batches keep only themselves in memory, not the batches that they came in."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.flow.batches import detached
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.flow.partitioning import by_number
from cutwater.state.backend import KeyedStateStore
from cutwater.state.tables import Column, JoinSide, Merge

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
KEYS = pa.schema([("k", pa.string())])
ROWS = 4000
BATCHES = 200
SOON_OVER = -1
"""The number of the pane or bucket that most rows of each batch are for."""

Add = Callable[[int, pa.RecordBatch], None]
Drop = Callable[[int], None]


def into_panes(store: KeyedStateStore) -> tuple[Add, Drop]:
    panes = store.panes("state", KEYS, "pane", [(Column("n", pa.int64()), Merge.ADD)])
    return panes.merge, panes.drop


def into_buckets(store: KeyedStateStore) -> tuple[Add, Drop]:
    buckets = store.buckets("state", SCHEMA, ("k",), "bucket")
    return buckets.add, buckets.drop


def into_a_join(store: KeyedStateStore) -> tuple[Add, Drop]:
    side = JoinSide(SCHEMA, ("k",))
    join = store.join("state", side, side, "bucket")
    return lambda bucket, rows: join.add(0, bucket, rows), join.drop


def batch() -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(["some key"] * ROWS), pa.array(np.arange(ROWS))], schema=SCHEMA)


@pytest.mark.parametrize("into", [into_panes, into_buckets, into_a_join])
@pytest.mark.parametrize("backend", [cw.Memory(), cw.Memory(incremental=True), cw.RocksDB(cache="1GB")], ids=str)
def test_one_row_of_each_batch_does_not_keep_the_batch(
    backend: cw.Memory | cw.RocksDB, into: Callable[[KeyedStateStore], tuple[Add, Drop]]
) -> None:
    """As late records do, each for another window."""
    store = backend.open("w1", KeyGroupRange(0, 127), 128)
    add, drop = into(store)
    whole = batch()
    before = pa.total_allocated_bytes()
    for number in range(BATCHES):
        panes = np.full(ROWS, SOON_OVER, np.int64)
        panes[number] = number
        for pane, part in by_number(whole, panes):
            add(pane, part)
        drop(SOON_OVER)
    assert pa.total_allocated_bytes() - before < 10 * whole.nbytes
    store.close()


def test_a_part_that_is_most_of_its_batch_is_not_copied() -> None:
    whole = batch()
    for part in (whole, whole.slice(ROWS // 2), whole.slice(10, ROWS // 3)):
        assert detached(part) is part


def test_a_small_part_has_the_same_rows_behind_it() -> None:
    small = batch().slice(17, 2)
    alone = detached(small)
    assert alone.equals(small)
    assert alone.get_total_buffer_size() < 100 < small.get_total_buffer_size()
