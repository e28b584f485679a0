"""Layers of row tables that gathered: few steps are enough for many of them."""

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.backend import StateBackend
from cutwater.state.frozen import FrozenTable
from cutwater.state.row_layers import FROZEN_BATCH_BYTES

MIB = 1 << 20
KEYS = pa.schema([("k", pa.int64())])
BACKENDS = {
    "memory": cw.Memory(),
    "incremental memory": cw.Memory(incremental=True),
    "rocksdb": cw.RocksDB(),
    "incremental rocksdb": cw.RocksDB(incremental=True),
}


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_small_layers_that_gathered_while_a_snapshot_was_read_go_in_one_step(backend: StateBackend) -> None:
    store = backend.open("u", KeyGroupRange(0, 127), 128)
    table = store.rows("n", KEYS, pa.int64())
    model: dict[int, int] = {}
    frozen: list[FrozenTable] = []
    for number in range(1, 21):
        table.put(number % 3, number)
        model[number % 3] = number
        frozen.extend(store.freeze(CheckpointId(number)))
        store.tend()
    for each in frozen:
        each.release()
    store.confirm(CheckpointId(20))
    store.tend()
    assert len(table._below) <= 1  # type: ignore[attr-defined]
    assert not getattr(table, "_unneeded", ())
    assert dict(table.items()) == model
    store.close()


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
@pytest.mark.parametrize("data_type", [pa.string(), pa.list_(pa.string())], ids=str)
def test_a_snapshot_of_large_values_comes_in_batches_of_few_rows(backend: StateBackend, data_type: pa.DataType) -> None:
    """All of them in one batch would need as much memory again, and more than 2 GB of texts are no column."""
    store = backend.open("u", KeyGroupRange(0, 127), 128)
    table = store.rows("n", KEYS, data_type)
    large: str | list[str] = "x" * MIB if data_type == pa.string() else ["x" * (MIB // 8)] * 8
    for key in range(30):
        table.put(key, large)
    [frozen] = store.freeze()
    sizes = [(batch.num_rows, batch.nbytes) for batch in frozen.batches()]
    assert sum(rows for rows, _ in sizes) == 30
    assert max(size for _, size in sizes) <= FROZEN_BATCH_BYTES + 2 * MIB
    frozen.release()
    store.close()


def test_few_large_texts_among_many_small_ones_are_in_different_batches() -> None:
    store = cw.Memory().open("u", KeyGroupRange(0, 127), 128)
    table = store.rows("n", KEYS, pa.string())
    for key in range(2000):
        table.put(key, "x" * (6 * MIB) if key % 500 == 7 else "small")
    [frozen] = store.freeze()
    sizes = [(batch.num_rows, batch.nbytes) for batch in frozen.batches()]
    assert sum(rows for rows, _ in sizes) == 2000
    assert max(size for _, size in sizes) <= FROZEN_BATCH_BYTES + 6 * MIB
    store.close()
