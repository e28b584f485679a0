"""Rows of held channels wait in memory, then on disk, and come back as they were."""

from hypothesis import given
from hypothesis import strategies as st

from cutwater.flow.envelope import RowKind, end_row
from cutwater.flow.ids import ChannelId
from cutwater.subtask.held import HeldQueue
from tests.unit.subtask.test_spill import in_memory, open_files, row


def contents(queue: HeldQueue) -> list[tuple[int, bytes]]:
    return [(each.seq, each.read().to_pybytes()) for each in queue.drain()]


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(0, 100))
def test_whatever_the_memory_limit_rows_come_back_in_order_and_unchanged(parts: list[bytes], limit: int) -> None:
    queue = HeldQueue(limit, None)
    rows = [row(seq, part) for seq, part in enumerate(parts)]
    for each in rows:
        queue.append(each)
    assert queue.bytes == sum(map(len, parts))
    assert sum(each.size for each in rows if in_memory(each)) <= limit
    assert contents(queue) == list(enumerate(parts))


def test_what_does_not_fit_in_memory_is_on_disk_and_out_of_memory() -> None:
    queue = HeldQueue(10, None)
    rows = [row(seq, b"x" * 8) for seq in range(4)]
    for each in rows:
        queue.append(each)
    assert [in_memory(each) for each in rows] == [True, False, False, False]
    assert contents(queue) == [(seq, b"x" * 8) for seq in range(4)]


def test_a_row_that_was_held_before_and_is_on_disk_takes_no_room_in_memory() -> None:
    before = HeldQueue(0, None)
    before.append(row(0, b"x" * 8))
    again = HeldQueue(10, None)
    for each in before.drain():
        again.append(each)
    later = row(1, b"y" * 8)
    again.append(later)
    assert again.bytes == 16
    assert in_memory(later)
    assert contents(again) == [(0, b"x" * 8), (1, b"y" * 8)]


def test_its_disk_is_freed_with_the_rows_whether_or_not_they_were_read() -> None:
    before = open_files()
    queue = HeldQueue(0, None)
    queue.append(row(0, b"never read"))
    assert open_files() == before + 1
    del queue
    assert open_files() == before


def test_rows_without_payload_never_touch_the_disk() -> None:
    before = open_files()
    queue = HeldQueue(0, None)
    queue.append(end_row(0, ChannelId(0), 0, drain=True))
    assert open_files() == before
    assert [each.kind for each in queue.drain()] == [RowKind.END]
