"""Unaligned cuts where they are delicate for state: beside a broadcast, and in the middle of a long firing on disk (rule 36).

Random schedules with failures; every checkpoint that completed is restored, at the same parallelism and at others.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cutwater as cw
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.flow.ids import CheckpointId
from cutwater.flow.transport import Step
from cutwater.operators import told_windows
from cutwater.state.operator_states import BoundOperatorStates
from cutwater.subtask.operator_subtask import OperatorSubtask
from tests.simulation.journeys import Journey, TroubledWorld
from tests.simulation.test_schedules import any_setting
from tests.simulation.test_unaligned import FIRING, LONG, UNALIGNED
from tests.simulation.timed_topologies import TIMED
from tests.simulation.variants import Patch
from tests.simulation.world import Setting, World, judge_every_cut, run_to_the_end

PARALLELISMS = (1, 2, 3, 5)
MOST_SEEDS = 60

# --- a broadcast beside keyed state -----------------------------------------------------------------------------------

BROADCASTING = {**UNALIGNED, "timeout": st.just("10s"), "troubles": st.integers(0, 1), "crashes": st.integers(0, 1)}


@settings(max_examples=4)
@given(
    any_setting(st.just("rules"), Journey, **BROADCASTING, parallelism=st.sampled_from(PARALLELISMS)),
    st.sampled_from(PARALLELISMS),
)
def test_broadcast_state_and_the_rows_on_their_way_to_it_are_of_one_cut(setting: Journey, parallelism: int) -> None:
    judge_rules(setting, parallelism)


def judge_rules(setting: Journey, parallelism: int) -> None:
    world = run_to_the_end(TroubledWorld(setting))
    world.judge()
    judge_every_cut(world)
    judge_every_cut(world, parallelism)


def test_copies_of_a_rule_are_on_their_way_to_some_when_others_have_applied_it() -> None:
    """Else there would be nothing to find: in one cut the subtasks know different rules."""
    differing = 0
    for seed in range(6):
        world = run_to_the_end(TroubledWorld(Journey("rules", seed, **LONG, splits=2)))
        differing += sum(len(set(_known_rules(moment))) > 1 for moment in world.moments)
    assert differing > 3


def _known_rules(moment: MemoryStorage) -> list[str]:
    """The broadcast state of each subtask in the latest checkpoint."""
    latest = JobStore(moment, "simulated").completed()[-1]
    operators = [operator for part in latest.subtasks for operator in part.snapshot.operators]
    return [repr(each.inline["broadcast_state"]) for each in operators if each.uid == "rules"]


# --- on disk, in the middle of a firing -------------------------------------------------------------------------------


class TidyWorld(World):
    """Closes its databases: whoever leaves that to the garbage waits for each of them."""

    def close(self) -> None:
        for running in self.subtasks.values():
            running.close()
        super().close()


class CutsBetweenSteps:
    """Which checkpoints had a subtask in the middle of what a watermark had made due."""

    def __init__(self, patch: Patch) -> None:
        self._checkpoints: set[CheckpointId] = set()
        real = OperatorSubtask._cut_between_steps

        def between(running: OperatorSubtask) -> Iterator[Step]:
            if (mark := running.intake.due_cut) is not None:
                self._checkpoints.add(mark.checkpoint)
            return real(running)

        patch.setattr(OperatorSubtask, "_cut_between_steps", between)

    def run(self, setting: Setting) -> tuple[World, Callable[[MemoryStorage], bool]]:
        """A run, and the question whether the latest checkpoint of one of its moments was cut so."""
        self._checkpoints.clear()
        world = run_to_the_end(TidyWorld(setting))
        world.judge()
        cut = frozenset(self._checkpoints)
        return world, lambda moment: JobStore(moment, "simulated").completed()[-1].id in cut


ON_DISK = {
    "full": cw.RocksDB(cache=1),
    "incremental": cw.RocksDB(incremental=True, cache=1),
}
"""Nothing stays in a cache of one byte."""


def judge_firing(cuts: CutsBetweenSteps, setting: Setting, parallelism: int) -> int:
    """How many checkpoints were restored that had been cut in the middle of a firing."""
    world, in_between = cuts.run(setting)
    if setting.topology != "kept":  # told once more where the parallelism changes, as windows with lateness are
        judge_every_cut(world, parallelism, in_between)
    return judge_every_cut(world, only=in_between)


def firing_on_disk(name: str, seed: int, backend: str) -> Setting:
    return Setting(name, seed, **{**FIRING, "rows": 8, "crashes": seed % 2, "backend": ON_DISK[backend]})


@pytest.mark.parametrize(
    ("name", "backend"), [(name, sorted(ON_DISK)[number % 2]) for number, name in enumerate(sorted(TIMED))], ids=str
)
@pytest.mark.usefixtures("small_steps")
def test_what_was_due_is_told_once_though_a_cut_on_disk_came_in_the_middle_of_it(
    name: str, backend: str, monkeypatch: Patch
) -> None:
    """All of them on both, for many schedules: ``make soak``."""
    cuts = CutsBetweenSteps(monkeypatch)
    runs = (
        judge_firing(cuts, firing_on_disk(name, seed, backend), PARALLELISMS[seed % 4]) for seed in range(MOST_SEEDS)
    )
    assert any(runs), "no checkpoint was cut in between"


# --- broken on purpose ------------------------------------------------------------------------------------------------


def _broadcast_state_is_not_restored(patch: Patch) -> None:
    real = BoundOperatorStates.__init__

    def init(self: BoundOperatorStates, function: Any, uid: str, parts: Any) -> None:
        real(self, function, uid, [{k: v for k, v in part.items() if k != "broadcast_state"} for part in parts])

    patch.setattr(BoundOperatorStates, "__init__", init)


def _rows_for_all_are_not_replayed(patch: Patch) -> None:
    real = OperatorSubtask._restored_rows

    def rows(self: OperatorSubtask) -> Iterator[Any]:
        ports = {incoming.channel: incoming.port for incoming in self._setup.inputs}
        return (row for row in real(self) if ports[row.channel] == 0)

    patch.setattr(OperatorSubtask, "_restored_rows", rows)


@pytest.mark.parametrize("break_it", [_broadcast_state_is_not_restored, _rows_for_all_are_not_replayed])
def test_a_broken_broadcast_is_caught(break_it: Callable[[Patch], None], monkeypatch: Patch) -> None:
    journeys = (Journey("rules", seed, **LONG, splits=2) for seed in range(MOST_SEEDS))
    with monkeypatch.context() as patch:
        break_it(patch)
        caught = next((journey for journey in journeys if _fails(lambda: judge_rules(journey, 3))), None)  # noqa: B023
    assert caught is not None
    judge_rules(caught, 3)


def _what_is_due_is_told_to_be_done(patch: Patch) -> None:
    real = told_windows.stored_watermark
    patch.setattr(told_windows, "stored_watermark", lambda time, due=None: real(time if due is None else due))


@pytest.mark.usefixtures("small_steps")
def test_a_broken_firing_on_disk_is_caught(monkeypatch: Patch) -> None:
    cuts = CutsBetweenSteps(monkeypatch)
    runs = (replace(firing_on_disk("sliding", seed, "full"), crashes=0) for seed in range(MOST_SEEDS))
    with monkeypatch.context() as patch:
        _what_is_due_is_told_to_be_done(patch)
        caught = next((each for each in runs if _fails(lambda: judge_firing(cuts, each, 2))), None)  # noqa: B023
    assert caught is not None
    judge_firing(cuts, caught, 2)


def _fails(judge: Callable[[], object]) -> bool:
    try:
        judge()
    except Exception as failure:
        print(f"{type(failure).__name__}: {str(failure)[:300]}")
        return True
    return False
