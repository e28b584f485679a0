"""Payloads that go to disk can be read by whoever has the row, and leave nothing behind (rule 25)."""

import gc
import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.errors import StorageError
from cutwater.flow.envelope import Row, RowKind, end_row
from cutwater.flow.ids import ChannelId
from cutwater.subtask import spill
from cutwater.subtask.spill import Spill


def row(seq: int, content: bytes) -> Row:
    return Row(0, ChannelId(0), RowKind.DATA, seq, 0, pa.py_buffer(content))


def in_memory(row: Row) -> bool:
    return isinstance(row.payload, pa.Buffer)


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(0, 100))
def test_whatever_the_memory_limit_rows_are_read_as_they_were(parts: list[bytes], limit: int) -> None:
    rows = [row(seq, part) for seq, part in enumerate(parts)]
    kept = Spill(limit, None)
    for each in rows:
        kept.keep(each)
    assert [each.read().to_pybytes() for each in rows] == parts
    assert [each.size for each in rows] == [len(part) for part in parts]
    assert sum(each.size for each in rows if in_memory(each)) <= limit


def test_a_row_with_room_in_memory_is_neither_copied_nor_written() -> None:
    small = row(0, b"small")
    payload = small.payload
    Spill(10, None).keep(small)
    assert small.payload is payload


def test_a_row_that_is_on_disk_is_not_written_again() -> None:
    first, second = Spill(0, None), Spill(0, None)
    each = row(0, b"once")
    first.keep(each)
    written = each.payload
    second.keep(each)
    assert each.payload is written
    assert each.read().to_pybytes() == b"once"


def test_the_file_has_no_name_that_would_survive_a_sigkill(tmp_path: Path) -> None:
    each = row(0, b"spilled")
    Spill(0, str(tmp_path)).keep(each)
    assert list(tmp_path.iterdir()) == []
    assert each.read().to_pybytes() == b"spilled"


def test_a_segment_is_there_until_the_last_row_of_it_is_gone(tmp_path: Path) -> None:
    before = open_files()
    kept = Spill(0, str(tmp_path))
    for_the_loop = [row(seq, b"x" * 8) for seq in range(2)]
    for_the_snapshot = for_the_loop[1:]
    for each in for_the_loop:
        kept.keep(each)
    assert open_files() == before + 1
    del kept, each
    for_the_loop.clear()
    assert open_files() == before + 1
    assert for_the_snapshot[0].read().to_pybytes() == b"x" * 8
    for_the_snapshot.clear()
    assert open_files() == before


def test_disk_is_given_back_while_later_rows_still_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "SEGMENT_BYTES", 16)
    before = open_files()
    kept = Spill(0, None)
    rows = [row(seq, b"x" * 8) for seq in range(6)]
    for each in rows:
        kept.keep(each)
    assert open_files() == before + 3
    del each
    del rows[:4]
    assert open_files() == before + 1
    assert [each.read().to_pybytes() for each in rows] == [b"x" * 8] * 2


def test_rows_without_payload_never_touch_the_disk() -> None:
    before = open_files()
    kept = Spill(0, None)
    kept.keep(end_row(0, ChannelId(0), 0, drain=True))
    assert open_files() == before


def test_a_disk_that_takes_no_rows_is_told_with_its_place_and_leaves_them_as_they_are(tmp_path: Path) -> None:
    kept, each = Spill(0, str(tmp_path / "gone")), row(0, b"waits")
    with pytest.raises(StorageError, match=r"cannot be kept in .*gone: No such file.*set TMPDIR"):
        kept.keep(each)
    assert each.read().to_pybytes() == b"waits"
