"""What a subtask keeps of the checkpoints that it stored."""

import gc
from collections.abc import Iterator

import pyarrow as pa
import pytest

from cutwater.checkpoint.layout import SubtaskFiles
from cutwater.checkpoint.table_writer import TableWriter
from cutwater.control.messages import ToDriver
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

    def release(self) -> None: ...


def tables_of_the_state() -> int:
    gc.collect()
    return sum(isinstance(each, StoredTable) and each.state == OneRow.name for each in gc.get_objects())


def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("incremental", [True, False])
def test_a_long_life_keeps_only_what_later_checkpoints_may_build_on(incremental: bool) -> None:
    said: list[ToDriver] = []
    writer = TableWriter(None, SubtaskFiles("checkpoints/", "shared/", SUBTASK, Attempt(1)))
    snapshotting = Snapshotting(SUBTASK, writer, SystemClock(), said.append, fail, incremental=incremental)
    for number in range(1, CHECKPOINTS + 1):
        base = CheckpointId(number - 1) if incremental and number > 1 else None
        frozen = {"count": OperatorSnapshot(tables=[OneRow()])}
        snapshotting.store(FrozenCut(CheckpointId(number), base, False, frozen, CutTimes(0, Alignment(), 0, 0), 0, 0))
    assert len(said) == CHECKPOINTS
    assert tables_of_the_state() == (2 if incremental else 0)
