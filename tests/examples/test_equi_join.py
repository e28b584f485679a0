"""The join by which the documents explain unaligned checkpoints: what an aligned one holds, and what comes out over failures."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import cutwater as cw
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


@pytest.mark.parametrize("parallelism", [1, 3])
def test_each_pair_comes_out_once_in_whatever_order_things_happen(example: Example, parallelism: int) -> None:
    join = example("equi_join")
    assert [join.run_and_fail(seed, parallelism) for seed in range(10)] == [[1, 2, 9]] * 10


def test_it_shows_its_output(example: Example, capsys: pytest.CaptureFixture[str]) -> None:
    example("equi_join").main()
    assert capsys.readouterr().out.count("[1, 2, 9]") == 5
