"""Rows that are added and never changed."""

import numpy as np
import pyarrow as pa
import pytest

from cutwater.state import appended_rows
from cutwater.state.appended_rows import AppendedRows

SCHEMA = pa.schema([("text", pa.string())])
WIDTH = 1000


def some(rows: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(["x" * WIDTH] * rows)], schema=SCHEMA)


def test_wide_rows_are_joined_no_further_than_one_column_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of more than 2 GiB do not fit into one, however few they are."""
    monkeypatch.setattr(appended_rows, "CHUNK_BYTES", 20 * WIDTH)
    rows = AppendedRows(SCHEMA)
    for _ in range(100):
        rows.append(some(1))
    assert len(rows) == 100
    assert 6 <= len(rows.chunks) <= 20
    assert max(chunk.nbytes for chunk in rows.chunks) <= 20 * WIDTH
    rows.append(some(50))
    rows.append(some(1))
    assert [chunk.num_rows for chunk in rows.chunks[-2:]] == [50, 1]


def test_the_widest_row_is_known_though_each_is_looked_at_once() -> None:
    rows = AppendedRows(SCHEMA)
    rows.append(some(3))
    assert rows.widest() == WIDTH + 4
    rows.append(pa.record_batch([pa.array(["a", "x" * 5000, "b"])], schema=SCHEMA))
    rows.append(some(1))
    assert rows.widest() == 5004
    assert rows.bytes_of(np.array([6, 4, 0, 3])).tolist() == [WIDTH + 4, 5004, WIDTH + 4, 5]
    rows.append(some(2_000))
    assert rows.widest() == 5004
    assert rows.bytes_of(np.array([2_000, 4])).tolist() == [WIDTH + 4, 5004]
