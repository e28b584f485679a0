"""``collect``: rows reach the driver when their checkpoint completed, and stay in checkpoints until that is sure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.operators.collect import CollectOperator
from cutwater.operators.operator import OperatorContext, OperatorSnapshot
from cutwater.state.memory import Memory
from tests.unit.operators.collecting import after

SCHEMA = pa.schema([("n", pa.int64())])


@dataclass
class Driver:
    got: list[tuple[int, int, list[int]]] = field(default_factory=list)

    def collected(self, uid: str, checkpoint: CheckpointId, writer: int, rows: bytes) -> None:
        with pa.ipc.open_stream(pa.BufferReader(pa.py_buffer(rows))) as reader:
            self.got.append((checkpoint, writer, [n for batch in reader for n in batch.column("n").to_pylist()]))

    def printed(self, lines: Sequence[str]) -> None:
        raise AssertionError("collect prints nothing")


@dataclass
class Restored:
    """The tables of a snapshot, as a restore hands them out."""

    snapshot: OperatorSnapshot
    inline: tuple[Any, ...] = ()

    def tables(self) -> list[str]:
        return [table.name for table in self.snapshot.tables]

    def batches(self, name: str) -> Iterator[pa.RecordBatch]:
        return next(table for table in self.snapshot.tables if table.name == name).batches()


def opened(
    driver: Driver, restored: Restored | None = None, *, subtask: int = 0, checkpointed: bool = True
) -> CollectOperator:
    operator = CollectOperator(SCHEMA)
    operator.open(
        OperatorContext(
            "job", "out", "collect", subtask, 2, 128, 1, "incarnation", KeyGroupRange(0, 63), Memory(), lambda: 0, driver,
            checkpointed=checkpointed, restored=restored,
        )
    )  # fmt: skip
    return operator


def put(operator: CollectOperator, *numbers: int) -> None:
    operator.process(pa.record_batch({"n": pa.array(numbers, pa.int64())}), 0, None)  # type: ignore[arg-type]


def cut(operator: CollectOperator, checkpoint: int) -> Restored:
    return Restored(operator.snapshot(CheckpointId(checkpoint)))


def test_rows_are_sent_when_their_checkpoint_completed_and_not_before() -> None:
    driver = Driver()
    operator = opened(driver)
    put(operator, 1, 2)
    cut(operator, 1)
    put(operator, 3)
    assert driver.got == []
    operator.checkpoint_completed(CheckpointId(1))
    assert driver.got == [(1, 0, [1, 2])]


def test_a_repeated_or_late_notice_sends_nothing_again() -> None:
    driver = Driver()
    operator = opened(driver)
    put(operator, 1)
    cut(operator, 2)
    operator.checkpoint_completed(CheckpointId(2))
    operator.checkpoint_completed(CheckpointId(2))
    operator.checkpoint_completed(CheckpointId(1))
    assert driver.got == [(2, 0, [1])]


def test_rows_of_an_aborted_checkpoint_come_with_the_next_one() -> None:
    driver = Driver()
    operator = opened(driver)
    put(operator, 1)
    cut(operator, 1)
    put(operator, 2)
    cut(operator, 2)
    operator.checkpoint_completed(CheckpointId(2))
    assert driver.got == [(1, 0, [1]), (2, 0, [2])]


def test_a_checkpoint_holds_what_may_not_have_arrived_and_a_restart_sends_it_again_under_the_same_name() -> None:
    operator = opened(Driver(), subtask=1)
    put(operator, 1)
    first = cut(operator, 1)
    operator.checkpoint_completed(CheckpointId(1))
    put(operator, 2)
    second = cut(operator, 2)
    again = Driver()
    opened(again, second)
    assert again.got == [(1, 1, [1]), (2, 1, [2])]
    once = Driver()
    opened(once, first)
    assert once.got == [(1, 1, [1])]


def test_what_an_earlier_completion_already_brought_leaves_the_checkpoints() -> None:
    operator = opened(Driver())
    put(operator, 1)
    cut(operator, 1)
    operator.checkpoint_completed(CheckpointId(1))
    cut(operator, 2)
    operator.checkpoint_completed(CheckpointId(2))
    driver = Driver()
    opened(driver, cut(operator, 3))
    assert driver.got == []


def test_without_checkpoints_rows_are_sent_at_the_end() -> None:
    driver = Driver()
    operator = opened(driver, checkpointed=False)
    put(operator, 1)
    put(operator, 2)
    assert driver.got == []
    after(operator.end_of_input(None, drain=True))  # type: ignore[arg-type]
    assert driver.got == [(0, 0, [1, 2])]
