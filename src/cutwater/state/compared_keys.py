"""Equal keys found by comparing each with each: where they are few, that is sooner done than to make an index of them."""

import numpy as np
import pyarrow as pa

from cutwater.flow.event_time import Times
from cutwater.flow.hashing import hash_arrays
from cutwater.state.encoded_keys import encode, plain_schema
from cutwater.state.frozen_keys import is_exact


def equal_keys(asked: pa.RecordBatch, held: pa.RecordBatch) -> tuple[Times, Times] | None:
    """Which of ``asked``, and beside it which of ``held``, in their order. None if different keys have the same hash, which is
    hardly ever so. Keys have no nulls, and the same types on both sides."""
    hashes = hash_arrays(asked.columns, asked.num_rows)
    which, rows = np.nonzero(hashes[:, np.newaxis] == hash_arrays(held.columns, held.num_rows))
    exact = is_exact(plain_schema(held.schema))
    if exact or not len(rows) or _are_same(asked.take(which), held.take(rows)):
        return which, rows
    return None


def _are_same(keys: pa.RecordBatch, others: pa.RecordBatch) -> bool:
    encoded, starts = encode(keys.columns, keys.num_rows)
    other, other_starts = encode(others.columns, others.num_rows)
    return np.array_equal(starts, other_starts) and np.array_equal(encoded, other)
