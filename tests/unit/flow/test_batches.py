"""Rows of several batches without the others."""

import numpy as np
import pyarrow as pa
import pytest

from cutwater.flow.batches import pieces, taken


@pytest.mark.parametrize("rows", [1, 7, 100, 1000])
def test_rows_are_taken_from_many_batches_in_the_order_that_is_asked_for(rows: int) -> None:
    whole = pa.record_batch([pa.array(np.arange(100)), pa.array([f"{n}" for n in range(100)])], names=["n", "text"])
    random = np.random.default_rng(1)
    for size in (1, 5, 99, 100):
        asked = random.integers(0, 100, rows)
        assert taken([*pieces(whole, size), whole.slice(0, 0)], asked).equals(whole.take(asked))
        assert taken([whole.slice(0, 0), *pieces(whole, size)], asked.astype(np.int32)).equals(whole.take(asked))
