"""Layers of row tables that gathered: few steps are enough for many of them."""

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.backend import StateBackend
from cutwater.state.frozen import FrozenTable

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
