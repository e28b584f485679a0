"""``env.explain()`` tells people what runs where, what it needs and what it guarantees."""

import sys
from pathlib import Path

import pytest

import cutwater as cw
from cutwater.explain import Explanation


class Odd(cw.Process):
    odd = cw.SideOutput("odd", "value long")

    def process(self, row: object, ctx: object) -> list[object]:
        return [row]


def explained(folder: Path) -> Explanation:
    env = cw.Environment(parallelism=2, checkpointing=cw.Checkpointing("1s", storage=f"file:{folder}"))
    numbers = env.read(cw.sequence(10), uid="numbers")
    split = numbers.process(Odd, "value long").named("Split")
    split.key_by("value").agg(n=cw.count()).uid("counts").write(cw.parquet_sink(folder / "out"), uid="out")
    split.side_output("odd").write(cw.print_sink(), uid="shown", parallelism=1)
    return env.explain()


def test_it_is_printed_and_returned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert capsys.readouterr().out == ""
    told = explained(tmp_path)
    assert capsys.readouterr().out == told + "\n"


def test_what_a_cell_returns_does_not_show_the_plan_a_second_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = explained(tmp_path)
    capsys.readouterr()
    sys.displayhook(told)
    assert capsys.readouterr().out == f"<the plan as printed, {len(told.splitlines())} lines>\n"
    assert str(told).startswith("Operators\n  numbers: ")


def test_it_names_operators_by_uid_and_says_which_uids_are_derived(tmp_path: Path) -> None:
    told = explained(tmp_path)
    assert "  numbers: sequence(10), parallelism 2\n" in told
    assert "(derived uid): Split, parallelism 2\n" in told
    assert "reads counts-combine by key group on value\n" in told
    assert "(side output odd) by rebalance\n" in told


def test_it_shows_what_shares_a_subtask_and_how_many_slots_are_needed(tmp_path: Path) -> None:
    told = explained(tmp_path)
    assert "  counts: counts -> out\n" in told
    assert "slots needed at the same time: 5\n" in told
    assert "  level 0: numbers[0], numbers[1]\n" in told
    assert "counts[0], counts[1]" in told


def test_it_states_the_guarantee_of_each_path_and_why(tmp_path: Path) -> None:
    told = explained(tmp_path)
    assert "  numbers -> out: exactly once (" in told
    assert "  numbers -> shown: at least once (print_sink writes at once and may repeat after a failure)\n" in told


def test_it_shows_the_exchange_between_the_levels(tmp_path: Path) -> None:
    told = explained(tmp_path)
    assert "  range(2) -> mapInArrow(level 0)\n" in told
    assert told.endswith("-> repartitionById(3, target), pipelined -> mapInArrow(level 1)")


def test_an_empty_pipeline_has_nothing_to_explain() -> None:
    with pytest.raises(cw.PlanError, match="pipeline is empty"):
        cw.Environment().explain()
