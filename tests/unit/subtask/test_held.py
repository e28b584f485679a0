"""Rows of held channels wait in memory, then on disk, and come back as they were."""

import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.errors import StorageError
from cutwater.flow.envelope import Row, RowKind, end_row
from cutwater.flow.ids import ChannelId
from cutwater.subtask.held import HeldQueue


def row(seq: int, content: bytes) -> Row:
    return Row(0, ChannelId(0), RowKind.DATA, seq, 0, pa.py_buffer(content))


def contents(queue: HeldQueue) -> list[tuple[int, bytes]]:
    return [(each.seq, each.payload.to_pybytes()) for each in queue.drain()]


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(0, 100))
def test_whatever_the_memory_limit_rows_come_back_in_order_and_unchanged(parts: list[bytes], limit: int) -> None:
    queue = HeldQueue(limit, None)
    for seq, part in enumerate(parts):
        queue.append(row(seq, part))
    assert queue.bytes == sum(map(len, parts))
    assert queue.bytes - queue.spilled_bytes <= max(limit, 0)
    assert contents(queue) == list(enumerate(parts))


def test_what_does_not_fit_in_memory_is_on_disk_and_out_of_memory() -> None:
    queue = HeldQueue(10, None)
    rows = [row(seq, b"x" * 8) for seq in range(4)]
    for each in rows:
        queue.append(each)
    assert queue.spilled_bytes == 24
    assert [each.size for each in rows] == [8, 0, 0, 0]
    assert contents(queue) == [(seq, b"x" * 8) for seq in range(4)]


def test_the_spill_file_has_no_name_and_its_disk_is_freed_with_the_queue(tmp_path: Path) -> None:
    queue = HeldQueue(0, str(tmp_path))
    queue.append(row(0, b"spilled"))
    assert list(tmp_path.iterdir()) == [], "a name would survive a SIGKILL"
    descriptor = queue._spill
    assert descriptor is not None
    assert os.fstat(descriptor).st_size == 7
    assert contents(queue) == [(0, b"spilled")]
    assert queue._spill is None


def test_discarding_frees_the_disk_without_reading(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    queue = HeldQueue(0, str(tmp_path))
    queue.append(row(0, b"never read"))
    assert len(os.listdir("/proc/self/fd")) == before + 1
    queue.discard()
    assert len(os.listdir("/proc/self/fd")) == before
    queue.discard()


def test_rows_without_payload_never_touch_the_disk() -> None:
    queue = HeldQueue(0, None)
    queue.append(end_row(0, ChannelId(0), 0, drain=True))
    assert queue.spilled_bytes == 0
    assert [each.kind for each in queue.drain()] == [RowKind.END]


def test_a_disk_that_takes_no_held_rows_is_told_with_its_place(tmp_path: Path) -> None:
    queue = HeldQueue(memory_limit=0, folder=str(tmp_path / "gone"))
    with pytest.raises(StorageError, match=r"cannot be kept in .*gone: No such file.*set TMPDIR"):
        queue.append(row(0, b"waits"))
