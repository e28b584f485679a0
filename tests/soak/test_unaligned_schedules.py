"""Thousands of schedules of unaligned checkpoints in the simulation, every one another: what the short tests see few of.

``CUTWATER_SOAK_EXAMPLES`` and ``CUTWATER_SOAK_SEEDS`` say how many of each kind.
"""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.conftest import small_steps
from tests.simulation.journeys import Journey, travel
from tests.simulation.test_schedules import COLLECTING, any_setting
from tests.simulation.test_unaligned import MOVABLE as MOVABLE_CUTS
from tests.simulation.test_unaligned import UNALIGNED
from tests.simulation.test_unaligned_rescale import MOVABLE, PATHS, journey
from tests.simulation.test_unaligned_state import (
    BROADCASTING,
    ON_DISK,
    PARALLELISMS,
    CutsBetweenSteps,
    firing_on_disk,
    judge_firing,
    judge_rules,
)
from tests.simulation.timed_topologies import TIMED
from tests.simulation.topologies import TOPOLOGIES
from tests.simulation.variants import Patch
from tests.simulation.world import Setting, judge_every_cut, run_and_judge

__all__ = ["small_steps"]

pytestmark = pytest.mark.timeout(7200)
JOURNEYS = range(int(os.environ.get("CUTWATER_SOAK_SEEDS", "40")))
EXAMPLES = int(os.environ.get("CUTWATER_SOAK_EXAMPLES", "500"))
many = settings(settings.get_profile("thorough"), max_examples=EXAMPLES)


@pytest.fixture(autouse=True)
def shared_session() -> None:
    """No Spark is needed here."""


@pytest.mark.parametrize("topology", MOVABLE)
def test_journeys_through_failures_and_parallelisms(topology: str) -> None:
    for seed in JOURNEYS:
        for path in PATHS:
            travel(journey(topology, seed, path))


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_nothing_is_lost_or_double_or_out_of_order(name: str) -> None:
    @many
    @given(any_setting(st.just(name), **UNALIGNED))
    def holds(setting: Setting) -> None:
        run_and_judge(setting)

    holds()


@many
@given(any_setting(COLLECTING, **UNALIGNED, crashes=st.integers(0, 1), timeout=st.just("10s")))
def test_every_cut_is_consistent(setting: Setting) -> None:
    judge_every_cut(run_and_judge(setting))


@many
@given(
    any_setting(MOVABLE_CUTS, **UNALIGNED, timeout=st.just("10s"), parallelism=st.sampled_from(PARALLELISMS)),
    st.sampled_from(PARALLELISMS),
)
def test_every_cut_goes_on_at_another_parallelism(setting: Setting, parallelism: int) -> None:
    judge_every_cut(run_and_judge(setting), parallelism)


@many
@given(
    any_setting(st.just("rules"), Journey, **BROADCASTING, parallelism=st.sampled_from(PARALLELISMS)),
    st.sampled_from(PARALLELISMS),
)
def test_broadcast_state_and_the_rows_on_their_way_to_it_are_of_one_cut(setting: Journey, parallelism: int) -> None:
    judge_rules(setting, parallelism)


@pytest.mark.parametrize("name", sorted(TIMED))
@pytest.mark.usefixtures("small_steps")
def test_what_a_watermark_makes_due_is_told_once(name: str) -> None:
    @many
    @given(any_setting(st.just(name), **UNALIGNED, rows=st.just(10)))
    def holds(setting: Setting) -> None:
        judge_every_cut(run_and_judge(setting))

    holds()


@pytest.mark.parametrize("backend", ON_DISK)
@pytest.mark.parametrize("name", sorted(TIMED))
@pytest.mark.usefixtures("small_steps")
def test_what_was_due_is_told_once_though_a_cut_on_disk_came_in_the_middle_of_it(
    name: str, backend: str, monkeypatch: Patch
) -> None:
    cuts = CutsBetweenSteps(monkeypatch)
    for seed in JOURNEYS:
        judge_firing(cuts, firing_on_disk(name, seed, backend), PARALLELISMS[seed % 4])
