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
OUTPUT = "collect-output"


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


def test_the_figures_of_the_documents(example: Example, tmp_path: Path) -> None:
    """What an unaligned checkpoint stores of the join, row by row, and what comes out of it; docs/unaligned-checkpoints.md
    draws it. The documents store the 1 of the output at its sender: here it is stored at its receiver."""
    join = example("equi_join")
    inputs = {
        "input1": cw.testing.script([1], MARK, [2], MARK, [9, 4]).items,
        "input2": cw.testing.script([1], MARK, [2, 9, 7], MARK, [5]).items,
    }
    with looked_at(join.pipeline, inputs, tmp_path, unaligned=True) as looking:
        # a: 1 came in both and is on its way out. The 2 of input1 waits before the join; 2, 9 and 7 are on their way to it.
        looking.let("input1", "input2", "join", "join<-0", "join<-1", OUTPUT, "driver")
        for uid in ("input1", "input2"):
            looking.pass_mark(uid)
            looking.let(uid)
        looking.let("join<-0")
        request = looking.trigger()
        looking.let("driver")
        # b: the barrier of input1 comes to the join, which cuts at once; so does the output, where nothing has come in yet.
        looking.let("input1")
        looking.let("join<-0")
        looking.let("join")
        looking.let(OUTPUT)
        # c: rows of both inputs are processed, 2 and 9 come out behind the barrier; then that of input2 comes too.
        looking.pass_mark("input1")
        looking.let("input1", "join<-0", "join<-1")
        looking.wait_for("join")
        looking.let("join", OUTPUT, f"{OUTPUT}<-0")
        assert looking.records_in(OUTPUT) == 3, "1, 2 and 9 came out before the checkpoint completed"
        assert request not in looking.simulation.answers
        looking.let("input2")
        looking.let("join<-1")
        looking.let("input1", "input2", "join", OUTPUT, "driver")
        taken = looking.completed(request)

        assert taken.unaligned
        assert looking.in_flight() == {
            "input1 -> join": [(2,)],
            "input2 -> join": [(2,), (9,), (7,)],
            f"join -> {OUTPUT}": [(1,)],
        }
        assert [row["number"] for row in looking.stored("join")] == [1, 1]
        assert looking.collected(OUTPUT) == []

        looking.simulation.crash()
        looking.pass_all_marks()
        looking.run_to_end()
        assert looking.collected(OUTPUT) == [(1,), (2,), (9,)]
        assert looking.records_in("join") == len([2, 9, 4]) + len([2, 9, 7, 5]), "what the state had seen came again"


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
