"""Whole jobs under random schedules: safety and liveness of the protocol (rules 9 to 27, 41, 42).

A run is decided by its setting: the seed that hypothesis draws drives the schedule, so a failure repeats.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.errors import ControlError
from cutwater.subtask.limits import FlowLimits
from cutwater.subtask.operator_subtask import OperatorSubtask
from tests.simulation.topologies import TOPOLOGIES
from tests.simulation.world import Setting, World, judge_every_cut, run_and_judge, run_to_the_end

TINY_LIMITS = st.builds(
    FlowLimits,
    inbox_bytes=st.sampled_from((1, 400, 2000)),
    hold_bytes=st.sampled_from((1, 600, 5000)),
    hold_memory_bytes=st.sampled_from((0, 400, 5000)),
    in_flight_memory_bytes=st.sampled_from((0, 400, 5000)),
    payload_bytes=st.sampled_from((1, 100, 1000)),
    linger_seconds=st.sampled_from((0.0, 0.01)),
    max_slice_rows=st.integers(1, 3),
)
ANY_TOPOLOGY = st.sampled_from(sorted(TOPOLOGIES))
COLLECTING = st.sampled_from(sorted(set(TOPOLOGIES) - {"two phase"}))


def any_setting(
    topology: st.SearchStrategy[str], kind: type[Setting] = Setting, **fixed: st.SearchStrategy[object]
) -> st.SearchStrategy[Any]:
    drawn: dict[str, st.SearchStrategy[object]] = {
        "seed": st.integers(0, 2**32),
        "parallelism": st.integers(1, 3),
        "buffer_rows": st.integers(1, 4),
        "max_concurrent": st.integers(1, 2),
        "crashes": st.integers(0, 3),
        "declines": st.sampled_from((0.0, 0.0, 0.2)),
        "hesitant": st.booleans(),
        "limits": TINY_LIMITS,
        "timeout": st.sampled_from(("30ms", "200ms", "10s")),
        "interval": st.sampled_from(("5ms", "20ms", "1h")),
    }
    return st.builds(kind, topology=topology, **{**drawn, **fixed})


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_exactly_once_nothing_is_lost_or_double_and_every_key_keeps_its_order(name: str) -> None:
    @settings(max_examples=12)
    @given(any_setting(st.just(name)))
    def holds(setting: Setting) -> None:
        run_and_judge(setting)

    holds()


@settings(max_examples=30)
@given(any_setting(ANY_TOPOLOGY, mode=st.just("at_least_once")))
def test_at_least_once_loses_nothing(setting: Setting) -> None:
    run_and_judge(setting)


def subtask_with_data(mode: str) -> OperatorSubtask:
    world = World(replace(Setting("narrowing", seed=1, mode=mode), crashes=0))
    while world.step() or world.advance_to_next_timer():
        for running in world.subtasks.values():
            if isinstance(running, OperatorSubtask) and list(running.intake._inbox.rows()):
                return running
    raise AssertionError("no data ever arrived")


def test_a_subtask_that_was_finished_in_an_unaligned_cut_drops_what_upstream_sends_again() -> None:
    """At least once cuts without alignment: downstream may have ended in a cut from which upstream goes on."""
    running = subtask_with_data("at_least_once")
    running._ended = True
    before = running.records_in
    while running.intake.has_items():
        assert list(running._work()) == []
    assert running.records_in == before


def test_data_behind_the_end_of_all_input_is_an_error_when_cuts_are_aligned() -> None:
    running = subtask_with_data("exactly_once")
    running._ended = True
    with pytest.raises(ControlError, match="after the end of its input"):
        list(running._work())


@settings(max_examples=30)
@given(any_setting(ANY_TOPOLOGY, mode=st.just("at_most_once")))
def test_at_most_once_doubles_nothing(setting: Setting) -> None:
    run_and_judge(setting)


@settings(max_examples=25)
@given(any_setting(COLLECTING, crashes=st.integers(0, 1), timeout=st.just("10s")))
def test_every_completed_checkpoint_is_a_consistent_cut(setting: Setting) -> None:
    judge_every_cut(run_and_judge(setting))


@settings(max_examples=25)
@given(any_setting(ANY_TOPOLOGY, crashes=st.just(0), declines=st.just(0.0), timeout=st.just("1h")))
def test_without_failures_every_checkpoint_completes_unless_a_newer_one_overtook_it(setting: Setting) -> None:
    world = run_to_the_end(World(setting))
    world.judge()
    failed = [info for info in world.ended if info.status.value == "failed"]
    assert not failed, f"{[(info.id, info.failure_reason) for info in failed]}"
    assert world.ended, "at least the final checkpoint was taken"


def test_the_same_setting_gives_the_same_run() -> None:
    setting = Setting("two sources", seed=7)
    first, second = run_and_judge(setting), run_and_judge(setting)
    assert first.outputs() == second.outputs()
    assert [(i.id, i.status) for i in first.ended] == [(i.id, i.status) for i in second.ended]


def test_the_schedules_reach_what_they_are_meant_to_reach() -> None:
    """Crashes, expired, declined and completed checkpoints all happen: a search that finds nothing must have looked."""
    reasons: set[str] = set()
    attempts, completed = 0, 0
    for seed in range(12):
        world = run_and_judge(Setting("two sources", seed, declines=0.1, max_concurrent=2, hesitant=True))
        attempts = max(attempts, world.attempts)
        completed += sum(info.status.value == "completed" for info in world.ended)
        reasons |= {info.failure_reason.split(":")[0] for info in world.ended if info.failure_reason}
    assert attempts == 3
    assert completed > 12
    told = " ".join(reasons)
    assert "crash" in told
    assert "not acknowledged within" in told
    assert "declined" in told


@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once", "at_most_once"])
def test_a_job_that_crashes_after_its_input_ended_still_finishes_with_the_right_answer(mode: str) -> None:
    """Rule 20: finished subtasks restore as finished, pass END on again, and the final checkpoint is taken once more."""
    for seed in range(4):
        world = World(replace(Setting("fan out", seed, mode=mode), crashes=0))
        while not (world.driver.finishing or (world.ended and world.ended[-1].kind.value == "final")):
            if not world.step():
                world.check_rest()
                assert world.advance_to_next_timer()
        world.crash()
        run_to_the_end(world).judge()
