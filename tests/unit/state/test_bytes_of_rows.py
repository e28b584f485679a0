"""What rows have each, whatever their types are and wherever their batch begins."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cutwater.state.bytes_of_rows import bytes_of_rows, least_bytes

CASES: list[tuple[pa.DataType, list[Any], list[int]]] = [
    (pa.int32(), [1, None], [4, 4]),
    (pa.bool_(), [True, False], [1, 1]),
    (pa.decimal128(9, 2), [None, 1], [16, 16]),
    (pa.string(), ["", "x" * 99, None], [4, 103, 4]),
    (pa.large_binary(), [b"ab", None, b"c"], [6, 4, 5]),
    (pa.dictionary(pa.int32(), pa.string()), ["x" * 99, "y"], [4, 4]),
    (pa.list_(pa.int64()), [[1, 2, 3], None, []], [28, 4, 4]),
    (pa.list_(pa.list_(pa.string())), [[["abc", None], []], [], [["x"]]], [23, 4, 13]),
    (pa.map_(pa.string(), pa.int32()), [[("a", 1), ("bcd", 2)], []], [24, 4]),
    (
        pa.struct([("n", pa.int16()), ("t", pa.string()), ("l", pa.list_(pa.int8()))]),
        [{"n": 1, "t": "abc", "l": [1]}, {"n": 2, "t": None, "l": None}],
        [14, 10],
    ),
    (pa.list_(pa.int32(), 2), [[1, 2], [3, 4]], [8, 8]),
]


@pytest.mark.parametrize(("kind", "values", "sizes"), CASES, ids=[str(kind) for kind, _, _ in CASES])
def test_each_row_has_its_own_bytes(kind: pa.DataType, values: list[Any], sizes: list[int]) -> None:
    batch = pa.record_batch([pa.array([*values, *values], kind), pa.array(range(2 * len(values)))], names=["c", "n"])
    for start in range(len(values)):
        some = batch.slice(start, len(values))
        wanted = [size + 8 for size in [*sizes, *sizes][start : start + len(values)]]
        assert bytes_of_rows(some, np.arange(len(values))).tolist() == wanted
        assert bytes_of_rows(some, np.array([1, 0, 1])).tolist() == [wanted[1], wanted[0], wanted[1]]
        assert least_bytes(some.schema) <= min(wanted)
