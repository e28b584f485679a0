"""What a subtask keeps of the checkpoints that it stored."""

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from cutwater.checkpoint.layout import SubtaskFiles
from cutwater.checkpoint.snapshot import EdgeName, InFlightEdge
from cutwater.checkpoint.table_writer import TableWriter
from cutwater.control.messages import Acknowledge, ToDriver
from cutwater.flow.clock import SystemClock
from cutwater.flow.envelope import Row, RowKind
from cutwater.flow.ids import Attempt, ChannelId, CheckpointId, SubtaskId
from cutwater.operators.operator import OperatorSnapshot
from cutwater.state.stored import StoredTable
from cutwater.subtask.cut_mark import Alignment
from cutwater.subtask.in_flight import Lane, RecordedTable
from cutwater.subtask.snapshotting import CutTimes, FrozenCut, Snapshotting

SUBTASK = SubtaskId("count", 0)
CHECKPOINTS = 20
EDGE = InFlightEdge(EdgeName("numbers", None, "count", 0), "n: int64", "hash", ("n",))


class OneRow:
    name = "seen"
    schema = pa.schema([("n", pa.int64())])

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([1])], self.schema)

    def __init__(self) -> None:
        self.is_released = False

    def release(self) -> None:
        assert not self.is_released
        self.is_released = True


def tables_of_the_state() -> int:
    gc.collect()
    return sum(isinstance(each, StoredTable) and each.state == OneRow.name for each in gc.get_objects())


def fail(error: BaseException) -> None:
    raise error


def opened(said: list[ToDriver], *, incremental: bool = False) -> Snapshotting:
    writer = TableWriter(None, SubtaskFiles("checkpoints/", "shared/", SUBTASK, Attempt(1)))
    return Snapshotting(SUBTASK, writer, SystemClock(), said.append, fail, incremental=incremental)


def cut(number: int, table: OneRow, base: CheckpointId | None = None, inline: Any = None) -> FrozenCut:
    frozen = {"count": OperatorSnapshot(inline=inline, tables=[table])}
    return FrozenCut(CheckpointId(number), base, False, frozen, CutTimes(0, Alignment(), 0, 0), 0, 0)


@pytest.mark.parametrize("incremental", [True, False])
def test_a_long_life_keeps_only_what_later_checkpoints_may_build_on(incremental: bool) -> None:
    said: list[ToDriver] = []
    snapshotting = opened(said, incremental=incremental)
    for number in range(1, CHECKPOINTS + 1):
        base = CheckpointId(number - 1) if incremental and number > 1 else None
        snapshotting.store(cut(number, OneRow(), base))
    assert len(said) == CHECKPOINTS
    assert tables_of_the_state() == (2 if incremental else 0)


@pytest.mark.parametrize("is_being_stored", [True, False])
def test_a_long_row_of_checkpoints_that_are_given_up_leaves_nothing_but_what_completed(is_being_stored: bool) -> None:
    """As when the storage is slower than their timeout."""
    said: list[ToDriver] = []
    snapshotting = opened(said, incremental=True)
    snapshotting.line_up(cut(1, OneRow()))()
    for number in range(2, CHECKPOINTS):

        def give_up(checkpoint: CheckpointId = CheckpointId(number)) -> None:
            snapshotting.give_up(checkpoint)

        during, after = (give_up, None) if is_being_stored else (None, give_up)
        snapshotting.line_up(cut(number, OneRow(), CheckpointId(1), inline=during))()
        if after is not None:
            after()
    snapshotting.line_up(cut(CHECKPOINTS, OneRow(), CheckpointId(1)))()
    assert tables_of_the_state() == 2


def test_a_cut_that_is_given_up_in_line_lets_go_of_its_state_at_once_and_still_prepares_its_output() -> None:
    said: list[ToDriver] = []
    snapshotting = opened(said)
    prepared: list[int] = []
    tables = [OneRow(), OneRow()]
    line = [
        snapshotting.line_up(cut(number, table, inline=lambda number=number: prepared.append(number)))
        for number, table in enumerate(tables, 1)
    ]
    snapshotting.give_up(CheckpointId(1))
    snapshotting.give_up(CheckpointId(1))
    assert [table.is_released for table in tables] == [True, False]
    for store in line:
        store()
    assert prepared == [1, 2]
    assert [message.checkpoint for message in said if isinstance(message, Acknowledge)] == [2]
    assert len(said) == 1
    assert tables[1].is_released
    snapshotting.give_up(CheckpointId(2))


class Rows(list[Row]):
    """A list that tells when it is gone."""


def line_up_with_a_row(
    snapshotting: Snapshotting, number: int
) -> tuple[Callable[[], None], Callable[[], None], weakref.ref[Rows]]:
    """What stores the state of a cut that overtook a row, what stores the row, and the row itself as long as it is kept."""
    channel = ChannelId(0)
    rows = Rows([Row(0, channel, RowKind.DATA, 0, 0, pa.py_buffer(b"overtaken"))])
    store = snapshotting.line_up(replace(cut(number, OneRow()), rows_follow=True))
    table = RecordedTable(rows, {channel: Lane(1, 0)})
    store_rows = snapshotting.line_up_rows(CheckpointId(number), table, (EDGE, EDGE), Alignment())
    return store, store_rows, weakref.ref(rows)


def test_rows_that_a_cut_given_up_in_line_overtook_are_let_go_at_once_and_never_stored() -> None:
    said: list[ToDriver] = []
    snapshotting = opened(said)
    lines = [line_up_with_a_row(snapshotting, number) for number in (1, 2)]
    assert [rows() is not None for _, _, rows in lines] == [True, True]
    snapshotting.give_up(CheckpointId(1))
    snapshotting.give_up(CheckpointId(1))
    assert [rows() is not None for _, _, rows in lines] == [False, True]
    for store, store_rows, _ in lines:
        store()
        store_rows()
    (acknowledged,) = said
    assert isinstance(acknowledged, Acknowledge)
    assert acknowledged.checkpoint == 2
    assert acknowledged.snapshot["in_flight"]["table"]["rows"] == 1
    assert acknowledged.snapshot["in_flight"]["rows"] == (0, 1)
    assert lines[1][2]() is None


@pytest.mark.parametrize("is_being_stored", [True, False])
def test_state_that_is_stored_and_waits_for_its_rows_is_forgotten_when_they_are_let_go(is_being_stored: bool) -> None:
    """The loop may give it up at any moment of the snapshot thread's."""
    said: list[ToDriver] = []
    snapshotting = opened(said)
    store, store_rows, rows = line_up_with_a_row(snapshotting, 1)
    if is_being_stored:
        taken = snapshotting._in_line.pop(CheckpointId(1)).take()
        snapshotting.give_up(CheckpointId(1))
        snapshotting.store(taken)
    else:
        store()
        snapshotting.give_up(CheckpointId(1))
        assert not tables_of_the_state()
    assert rows() is None
    store_rows()
    assert not tables_of_the_state()
    assert not said
