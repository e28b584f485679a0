import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.flow.partitioning import partition


@given(st.lists(st.integers(0, 4), max_size=60))
def test_each_target_gets_its_rows_in_their_order(targets: list[int]) -> None:
    batch = pa.record_batch(
        {"i": pa.array(range(len(targets)), pa.int64()), "s": [str(i) for i in range(len(targets))]}
    )
    parts = partition(batch, np.array(targets, np.int32), 5)
    for target, part in enumerate(parts):
        expected = [i for i, t in enumerate(targets) if t == target]
        assert (part.column("i").to_pylist() if part is not None else []) == expected
        assert (part.column("s").to_pylist() if part is not None else []) == [str(i) for i in expected]


def test_a_batch_that_goes_to_one_target_is_not_copied() -> None:
    batch = pa.record_batch({"i": [1, 2, 3]})
    assert partition(batch, np.array([2, 2, 2], np.int32), 4) == [None, None, batch, None]
    assert partition(batch, np.array([2, 2, 2], np.int32), 4)[2] is batch


def test_a_target_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"outside 0\.\.1"):
        partition(pa.record_batch({"i": [1]}), np.array([2], np.int32), 2)
