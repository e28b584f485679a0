"""Every committable reaches its sink's ``committed_everywhere`` once, whatever failed between its cut and its commit."""

from dataclasses import replace
from typing import Any

from cutwater.checkpoint.completed import CommittedOutput, CompletedCheckpoint, decode_metadata, encode_metadata
from cutwater.checkpoint.snapshot import StoredOperator, SubtaskSnapshot
from cutwater.flow.ids import CheckpointId
from cutwater.job.output import UnconfirmedOutput, VisibleOutput, restored_output
from tests.unit.checkpoint.checkpoints import completed

ONE, TWO, THREE = CheckpointId(1), CheckpointId(2), CheckpointId(3)


def listing(id: int, *entries: tuple[int, str], subtask: int = 0) -> SubtaskSnapshot:
    committables: list[Any] = [{"checkpoint": checkpoint, "value": value} for checkpoint, value in entries]
    return SubtaskSnapshot("out", subtask, False, (StoredOperator("out", {"committables": committables}, ()),))


def checkpoint(id: int, *entries: tuple[int, str]) -> CompletedCheckpoint:
    return completed(id, snapshots=(listing(id, *entries),))


def visible(id: CheckpointId, *entries: tuple[int, str]) -> VisibleOutput:
    return VisibleOutput(id, "out", tuple(CommittedOutput("out", CheckpointId(n), value) for n, value in entries))


def test_what_an_aborted_checkpoint_prepared_is_visible_with_the_one_that_commits_it() -> None:
    output = UnconfirmedOutput()
    output.add(checkpoint(2, (1, "a"), (2, "b")))
    assert output.confirm(TWO) == [visible(TWO, (1, "a"), (2, "b"))]


def test_what_is_listed_again_because_its_commit_was_under_way_comes_out_once() -> None:
    output = UnconfirmedOutput()
    output.add(checkpoint(1, (1, "a")))
    output.add(checkpoint(2, (1, "a"), (2, "b")))
    assert output.confirm(ONE) == [visible(ONE, (1, "a"))]
    assert output.confirm(TWO) == [visible(TWO, (2, "b"))]
    assert output.confirm(TWO) == []


def test_everything_that_a_restored_checkpoint_lists_is_visible_when_it_is_open() -> None:
    assert restored_output(checkpoint(2, (1, "a"), (2, "b"))) == [visible(TWO, (1, "a"), (2, "b"))]
    assert restored_output(checkpoint(2)) == []


def test_what_was_committed_but_not_by_all_is_carried_by_the_next_checkpoint_through_its_file() -> None:
    output = UnconfirmedOutput()
    first = completed(1, snapshots=(listing(1, (1, "a"), subtask=0), listing(1, (1, "b"), subtask=1)))
    output.add(first)
    second = completed(2, snapshots=(listing(2, (2, "c"), subtask=0), listing(2, (1, "b"), (2, "d"), subtask=1)))
    second = replace(second, carried=output.carried_past(second))
    stored = decode_metadata("metadata.json", encode_metadata(second))
    assert stored == second
    assert restored_output(stored) == [visible(TWO, (1, "a"), (2, "c"), (1, "b"), (2, "d"))]
    output.add(second)
    output.confirm(TWO)
    assert output.carried_past(checkpoint(3, (3, "e"))) == ()


def test_what_a_sink_has_not_heard_is_carried_although_every_subtask_has_committed_it() -> None:
    output = UnconfirmedOutput()
    output.add(checkpoint(1, (1, "a")))
    (first,) = output.confirm(ONE)
    second = checkpoint(2, (2, "b"))
    assert output.carried_past(second, first.output) == first.output
    third = checkpoint(3, (1, "a"), (3, "c"))
    assert output.carried_past(third, first.output) == ()
