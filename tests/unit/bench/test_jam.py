"""What is made of the checkpoints of a jammed job."""

from bench.ours.jam import Taken, barriers_ms, equal_in_flight, growth_percent
from cutwater.checkpoint.statistics import (
    CheckpointInfo,
    CheckpointKind,
    CheckpointStatus,
    SubtaskCheckpointInfo,
    describe_checkpoint,
)
from cutwater.flow.ids import CheckpointId
from cutwater.subtask.limits import MIB


def checkpoint(*parts: tuple[float, float, int]) -> CheckpointInfo:
    """Of subtasks with these start delays, alignments and bytes in flight."""
    subtasks = [
        SubtaskCheckpointInfo("step", index, 1.0, 0, in_flight, alignment, delay, 0.0, 0.0, 0.0)
        for index, (delay, alignment, in_flight) in enumerate(parts)
    ]
    return describe_checkpoint(
        CheckpointId(1),
        CheckpointKind.CHECKPOINT,
        CheckpointStatus.COMPLETED,
        trigger_time=0.0,
        duration=1.0,
        unaligned=True,
        subtasks=subtasks,
    )


def test_the_last_barrier_counts_wherever_it_arrives() -> None:
    assert barriers_ms(checkpoint((0.5, 0.0, 0), (0.1, 0.6, 0), (0.2, 0.1, 0))) == 700


def test_fewer_steps_get_larger_inboxes_until_as_many_bytes_are_on_their_way() -> None:
    """Ten subtasks with 2 MiB in the inbox and 3 in the pipe have what four have with 9.5 and 3."""
    deep = Taken([checkpoint((0.0, 0.0, 50 * MIB))], [])
    assert equal_in_flight(deep, steps=5, fewer=2, parallelism=2).inbox_bytes == 9.5 * MIB


def test_growth_compares_the_last_third_with_the_first() -> None:
    assert growth_percent([10, 10, 50, 20, 15, 15]) == 50
    assert growth_percent([10] * 12) == 0
