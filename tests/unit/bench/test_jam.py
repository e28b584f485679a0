"""What is made of the checkpoints of a jammed job."""

from bench.ours.jam import barriers_ms, most_at_last, wider_pipes
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


def test_fewer_steps_get_wider_pipes_until_as_many_bytes_are_on_their_way() -> None:
    assert wider_pipes(5 / 2) == {
        "spark.shuffle.streaming.readerMaxMemory": str(int(2.5 * MIB)),
        "spark.shuffle.streaming.writerMaxMemory": str(int(2.5 * MIB)),
    }


def test_bytes_that_grow_with_each_checkpoint_show_in_the_last_third() -> None:
    assert most_at_last([10, 90, 50, 20, 15, 15]) == 15
    assert most_at_last([1, 2, 3, 4, 5, 6]) == 6
    assert most_at_last([7]) == 7
