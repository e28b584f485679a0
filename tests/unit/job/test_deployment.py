"""What a checkpoint must not be restored with, asked of a whole program."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

import cutwater as cw
from cutwater.checkpoint.completed import CompletedCheckpoint
from cutwater.checkpoint.snapshot import StoredInFlight, SubtaskSnapshot
from cutwater.errors import RestoreError
from cutwater.flow.ids import SubtaskId
from cutwater.job.definition import JobDefinition
from cutwater.job.deployment import check_fit
from cutwater.state.stored import StoredFile, StoredTable
from tests.unit.checkpoint.checkpoints import completed

ENDED, RUNNING = SubtaskId("step", 0), SubtaskId("step", 1)


class Forgetful(cw.KeyedProcess):
    def process(self, row: Any, ctx: Any) -> Any:
        yield (row.value,)


def program(key: str, parallelism: int = 2) -> JobDefinition:
    env = cw.Environment(
        parallelism=parallelism, checkpointing=cw.Checkpointing("1h", storage="memory", unaligned=True)
    )
    numbers = env.read(cw.sequence(100), uid="numbers").with_columns(j=pl.col("value") % 3, k=pl.col("value") % 5)
    numbers.key_by(key).process(Forgetful(), "value long").uid("step").write(cw.discard(), uid="nowhere")
    return env.define("job", parallelism)


def jammed_at_its_end(definition: JobDefinition) -> CompletedCheckpoint:
    """Rows are on their way to one subtask, and to the others no more come."""
    rows = StoredTable("in-flight", (StoredFile("chk-1/step", 10, "ab" * 32),), 1, 0, -1)
    edges = tuple(each.edge for each in definition.edge_shapes() if each.vertex == RUNNING.vertex)
    snapshots = tuple(
        SubtaskSnapshot(subtask.vertex, subtask.index, subtask != RUNNING, (),
                        StoredInFlight(edges, (1,) * len(edges), rows) if subtask == RUNNING else None)
        for subtask in definition.plan.subtasks
    )  # fmt: skip
    return replace(completed(1, snapshots=snapshots), graph=definition.shapes())


def test_rows_whose_key_is_another_now_do_not_go_to_a_subtask_that_had_ended() -> None:
    checkpoint = jammed_at_its_end(program("j"))
    with pytest.raises(RestoreError, match=r"another key.*processed all their input: step\[0\]\..*aligned checkpoint"):
        check_fit(program("k"), checkpoint, allow_non_restored_state=False)


@pytest.mark.parametrize(("key", "parallelism"), [("j", 2), ("j", 3), ("k", 3)])
def test_else_rows_go_on_beside_subtasks_that_had_ended(key: str, parallelism: int) -> None:
    check_fit(program(key, parallelism), jammed_at_its_end(program("j")), allow_non_restored_state=False)
