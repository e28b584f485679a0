"""What a snapshot of a store holds, as the contract of backends looks at it."""

from collections.abc import Sequence

import pyarrow as pa

from cutwater.flow.hashing import hash_columns, key_groups
from cutwater.state.backend import KeyedStateStore
from cutwater.state.frozen import KEY_GROUP_COLUMN, FrozenTable
from cutwater.testing.contract_tables import MAX_PARALLELISM, expect


def batches_of(store: KeyedStateStore) -> dict[str, list[pa.RecordBatch]]:
    """What a snapshot of the store holds, by the name of the table."""
    return {frozen.name: read(frozen) for frozen in store.freeze()}


def read(frozen: FrozenTable) -> list[pa.RecordBatch]:
    try:
        batches = list(frozen.batches())
    finally:
        frozen.release()
    for batch in batches:
        expect(batch.schema.names, frozen.schema.names, f"columns of {frozen.name}")
    return batches


def check_groups(batch: pa.RecordBatch, keys: Sequence[str]) -> None:
    wanted = key_groups(hash_columns(batch, keys), MAX_PARALLELISM).tolist()
    expect(batch.column(KEY_GROUP_COLUMN).to_pylist(), wanted, "key groups")
