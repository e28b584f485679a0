"""The worked example of consistent checkpoints: sums of even and odd numbers."""

import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cutwater as cw
from cutwater.flow.ids import SubtaskId
from tests.examples.looking import LookedAt, looked_at

Example = Callable[[str], ModuleType]
MARK = cw.testing.CHECKPOINT
NUMBERS = [item for number in range(1, 41) for item in (number, MARK)]
"""With a mark behind each, so that they come one by one."""


def test_the_checkpoint_at_offset_5_holds_6_and_9(example: Example, tmp_path: Path) -> None:
    script = [1, 2, 3, 4, 5, MARK, 6, 7]
    with looked_at(example("odd_even_sums").pipeline, {"numbers": script}, tmp_path) as looking:
        looking.simulation.run_until_idle()
        request = looking.trigger()
        looking.simulation.run_until_idle()
        looking.completed(request)
        assert looking.positions("numbers") == [{"splits": [{"split": 0, "position": 5, "ended": False}]}]
        assert {row["parity"]: row["total"] for row in looking.stored("sums")} == {"even": 6, "odd": 9}


def test_a_failure_behind_that_checkpoint_is_not_seen_in_the_sums(example: Example) -> None:
    script = cw.testing.script([1, 2, 3, 4, 5], MARK, [6, 7], cw.testing.FAIL, [8, 9, 10])
    got = cw.testing.run(example("odd_even_sums").pipeline, {"numbers": script})
    assert {row.parity: row.total for row in got["sums"]} == {"even": 2 + 4 + 6 + 8 + 10, "odd": 1 + 3 + 5 + 7 + 9}


def _position(looking: LookedAt, uid: str) -> int:
    """How many numbers of this source stand before its barrier."""
    (operator,) = looking.positions(uid)
    (split,) = operator["splits"]
    return (split["position"] + 1) // 2


def _expected(*positions: int) -> dict[int, int]:
    seen = [number for position in positions for number in range(1, position + 1)]
    return {parity: sum(number for number in seen if number % 2 == parity) for parity in (0, 1)}


def _checkpoint_while_running(example: Example, folder: Path, mode: str, seed: int) -> tuple[bool, int]:
    """Whether the stored sums are those of the stored positions; and the most bytes that a sum task put aside."""
    order = random.Random(seed)
    inputs = {"first": NUMBERS, "second": NUMBERS}
    pipeline = example("odd_even_two_sources").pipeline
    with looked_at(pipeline, inputs, folder, parallelism=2, mode=mode, choose=order.randrange) as looking:
        looking.pass_all_marks()
        for _ in range(60):
            looking.simulation.step()
        request = looking.trigger()
        held = 0
        while request not in looking.simulation.answers:
            assert looking.simulation.step(), "the checkpoint hangs"
            tasks = [looking.simulation.subtasks[SubtaskId("sums", index)] for index in (0, 1)]
            held = max(held, *(task.held_bytes for task in tasks))
        looking.completed(request)
        stored: dict[int, Any] = {row["parity"]: row["reduced"]["value"] for row in looking.stored("sums")}
        consistent = stored == _expected(_position(looking, "first"), _position(looking, "second"))
        looking.run_to_end()
        assert all(task.held_bytes == 0 for task in looking.simulation.subtasks.values()), (
            "something was never released"
        )
        return consistent, held


def test_the_even_and_the_odd_numbers_have_a_task_each(example: Example, tmp_path: Path) -> None:
    with looked_at(example("odd_even_two_sources").pipeline, {}, tmp_path, parallelism=2) as looking:
        request = looking.trigger()
        looking.run_to_end()
        looking.completed(request)
        tasks = [record.metrics.state_bytes for record in looking.latest.subtasks if record.snapshot.vertex == "sums"]
    assert len(tasks) == 2 and all(size > 0 for size in tasks)


def test_two_sources_are_aligned_so_that_the_sums_belong_to_the_positions(example: Example, tmp_path: Path) -> None:
    runs = [_checkpoint_while_running(example, tmp_path / str(seed), "exactly_once", seed) for seed in range(6)]
    assert all(consistent for consistent, _ in runs)
    assert any(held > 0 for _, held in runs), "no barrier ever had to wait for the other: the test shows nothing"


def test_without_alignment_some_sums_hold_more_than_their_positions_say(example: Example, tmp_path: Path) -> None:
    runs = [_checkpoint_while_running(example, tmp_path / str(seed), "at_least_once", seed) for seed in range(6)]
    assert not all(consistent for consistent, _ in runs)
    assert all(held == 0 for _, held in runs), "at least once puts nothing aside"


@pytest.mark.parametrize("seed", range(3))
def test_two_sources_end_with_the_right_sums_in_both_sinks(example: Example, seed: int) -> None:
    order = random.Random(seed)
    marked = cw.testing.script([1, 2, 3], MARK, [4, 5], cw.testing.FAIL, [6])
    inputs = {"first": marked, "second": [1, 2, 3, 4]}
    got = cw.testing.run(example("odd_even_two_sources").pipeline, inputs, parallelism=2, choose=order.randrange)
    assert got["even"][-1].value == 2 + 4 + 6 + 2 + 4
    assert got["odd"][-1].value == 1 + 3 + 5 + 1 + 3
