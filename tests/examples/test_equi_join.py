"""The join by which the documents explain unaligned checkpoints: what each kind holds, and what comes out over failures."""

import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import cutwater as cw
from cutwater.checkpoint.statistics import CheckpointInfo
from tests.examples.looking import looked_at

Example = Callable[[str], ModuleType]
MARK = cw.testing.ADVANCE("1s")


def test_the_checkpoint_holds_what_stands_before_the_barriers_of_both_inputs(example: Example, tmp_path: Path) -> None:
    join = example("equi_join")
    inputs = {
        uid: cw.testing.script(before, MARK, behind).items
        for uid, (before, behind) in {"input1": join.INPUT1, "input2": join.INPUT2}.items()
    }
    with looked_at(join.pipeline, inputs, tmp_path) as looking:
        looking.simulation.run_until_idle()
        request = looking.trigger()
        looking.simulation.run_until_idle()
        looking.completed(request)
        stored = sorted(row["number"] for row in looking.stored("join"))
        looking.pass_all_marks()
        looking.run_to_end()
    assert stored == sorted(join.INPUT1[0] + join.INPUT2[0])


@pytest.mark.parametrize("unaligned", [False, True])
def test_unaligned_it_holds_what_the_barriers_passed(example: Example, tmp_path: Path, unaligned: bool) -> None:
    """In some order of events at least: where nothing waits, nothing is passed."""
    join = example("equi_join")
    inputs = {
        uid: cw.testing.script(*parts).items for uid, parts in {"input1": join.INPUT1, "input2": join.INPUT2}.items()
    }
    passed = 0
    for seed in range(10):
        order = random.Random(seed)
        folder = tmp_path / str(seed)
        with looked_at(join.pipeline, inputs, folder, unaligned=unaligned, choose=order.randrange) as looking:
            for _ in range(order.randrange(30)):
                looking.simulation.step()
            request = looking.trigger()
            looking.run_to_end()
            answer = looking.simulation.answers[request]
            passed += answer.in_flight_bytes if isinstance(answer, CheckpointInfo) else 0
    assert (passed > 0) == unaligned


@pytest.mark.parametrize("unaligned", [False, True])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_each_pair_comes_out_once_in_whatever_order_things_happen(
    example: Example, parallelism: int, unaligned: bool
) -> None:
    join = example("equi_join")
    assert [join.run_and_fail(seed, parallelism, unaligned=unaligned) for seed in range(10)] == [[1, 2, 9]] * 10


def test_it_shows_its_output(example: Example, capsys: pytest.CaptureFixture[str]) -> None:
    example("equi_join").main()
    assert capsys.readouterr().out.count("[1, 2, 9]") == 10
