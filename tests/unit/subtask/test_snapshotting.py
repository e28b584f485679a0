"""What a subtask keeps of the checkpoints that it stored."""

import gc
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from cutwater.checkpoint.layout import SubtaskFiles
from cutwater.checkpoint.table_writer import TableWriter
from cutwater.control.messages import Acknowledge, ToDriver
from cutwater.flow.clock import SystemClock
from cutwater.flow.ids import Attempt, CheckpointId, SubtaskId
from cutwater.operators.operator import OperatorSnapshot
from cutwater.state.stored import StoredTable
from cutwater.subtask.cut_mark import Alignment
from cutwater.subtask.snapshotting import CutTimes, FrozenCut, Snapshotting

SUBTASK = SubtaskId("count", 0)
CHECKPOINTS = 20


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
