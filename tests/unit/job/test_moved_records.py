"""Records are counted once, however often a run goes back over them."""

from cutwater.checkpoint.statistics import CheckpointInfo, CheckpointKind, CheckpointStatus, SubtaskCheckpointInfo
from cutwater.control.messages import Progress
from cutwater.flow.ids import CheckpointId, SubtaskId
from cutwater.job.moved_records import Moved, MovedRecords

SOURCE, SINK = SubtaskId("numbers", 0), SubtaskId("out", 0)


def progress(read: int, written: int) -> dict[SubtaskId, Progress]:
    return {
        SOURCE: Progress(read, read, 0.0, 0, 0),
        SINK: Progress(read, 0, 0.0, 0, 0, records_written=written),
    }


def completed(number: int, read: int, written: int) -> CheckpointInfo:
    def part(subtask: SubtaskId, records_written: int) -> SubtaskCheckpointInfo:
        return SubtaskCheckpointInfo(
            vertex=subtask.vertex, index=subtask.index, acknowledged_after=0.0, state_bytes=0, in_flight_bytes=0,
            alignment=0.0, start_delay=0.0, sync_duration=0.0, async_duration=0.0, longest_gap=0.0, records_in=read,
            records_written=records_written,
        )  # fmt: skip

    return CheckpointInfo(
        CheckpointId(number), CheckpointKind.CHECKPOINT, CheckpointStatus.COMPLETED, 0.0, 0.0, 0, 0, 0.0, 0.0, 0.0, 0.0,
        None, None, unaligned=False, subtasks=(part(SOURCE, 0), part(SINK, written)),
    )  # fmt: skip


def test_what_comes_behind_the_restored_checkpoint_is_counted_by_the_attempt_that_repeats_it() -> None:
    moved = MovedRecords({SOURCE})
    moved.checkpoint_completed(CheckpointId(1), completed(1, read=100, written=40))
    assert moved.so_far(progress(150, 60)) == Moved(150, 60)
    moved.go_back_to(CheckpointId(1))
    assert moved.so_far(progress(50, 20)) == Moved(150, 60)
    moved.checkpoint_completed(CheckpointId(2), completed(2, read=70, written=30))
    moved.go_back_to(CheckpointId(2))
    assert moved.so_far(progress(0, 0)) == Moved(170, 70)


def test_a_run_that_starts_over_counts_anew_and_at_most_once_never_goes_back() -> None:
    moved = MovedRecords({SOURCE})
    moved.go_on_behind(progress(10, 4))
    assert moved.so_far(progress(5, 2)) == Moved(15, 6)
    moved.start_over()
    assert moved.so_far(progress(5, 2)) == Moved(5, 2)
