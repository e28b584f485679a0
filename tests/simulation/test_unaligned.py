"""Unaligned checkpoints, and aligned ones that run out of time, under random schedules (rules 9, 14 to 20, 24).

The same worlds and the same questions as in test_schedules: whatever is cut is a consistent cut, whatever is triggered ends.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.barrier.unaligned import WaitingForChannels
from cutwater.checkpoint.stored_tables import RestoredTables
from cutwater.flow.envelope import Row, RowKind
from cutwater.subtask import operator_subtask
from cutwater.subtask.in_flight import Recording
from cutwater.subtask.intake import CutMark, Intake
from cutwater.subtask.limits import FlowLimits
from cutwater.subtask.operator_subtask import OperatorSubtask
from cutwater.subtask.subtask import Subtask
from tests.simulation.test_schedules import ANY_TOPOLOGY, COLLECTING, any_setting
from tests.simulation.topologies import TOPOLOGIES
from tests.simulation.variants import Patch, Variant, check_that_it_is_caught
from tests.simulation.world import Setting, World, judge_every_cut, run_and_judge, run_to_the_end

MOVABLE = st.sampled_from(sorted(set(TOPOLOGIES) - {"two phase", "broadcast", "narrowing"}))
"""How many copies of a record a broadcast makes depends on the parallelism that it meets. Where everything has parallelism 1,
the steps of "narrowing" are one chain, and rows between them have no way any more: they are refused."""
TIMEOUTS = st.sampled_from((None, "1ms", "10ms"))
UNALIGNED: dict[str, st.SearchStrategy[object]] = {
    "unaligned": st.just(True),
    "aligned_timeout": TIMEOUTS,
    "max_concurrent": st.just(1),
    "preempted": st.booleans(),
}


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_exactly_once_nothing_is_lost_or_double_and_every_key_keeps_its_order(name: str) -> None:
    @settings(max_examples=12)
    @given(any_setting(st.just(name), **UNALIGNED))
    def holds(setting: Setting) -> None:
        run_and_judge(setting)

    holds()


@settings(max_examples=25)
@given(any_setting(COLLECTING, **UNALIGNED, crashes=st.integers(0, 1), timeout=st.just("10s")))
def test_every_completed_checkpoint_is_a_consistent_cut(setting: Setting) -> None:
    judge_every_cut(run_and_judge(setting))


@settings(max_examples=15)
@given(
    any_setting(
        MOVABLE, **UNALIGNED, crashes=st.just(0), timeout=st.just("10s"), parallelism=st.sampled_from((1, 2, 3, 5))
    ),
    st.sampled_from((1, 2, 3, 5)),
)
def test_every_completed_checkpoint_goes_on_at_another_parallelism(setting: Setting, parallelism: int) -> None:
    judge_every_cut(run_and_judge(setting), parallelism)


@settings(max_examples=25)
@given(any_setting(ANY_TOPOLOGY, **UNALIGNED, crashes=st.just(0), declines=st.just(0.0), timeout=st.just("1h")))
def test_without_failures_every_checkpoint_completes(setting: Setting) -> None:
    world = run_to_the_end(World(setting))
    world.judge()
    ended = [(info.id, info.status.value, info.failure_reason) for info in world.ended]
    assert ended, "at least the final checkpoint was taken"
    assert {status for _, status, _ in ended} == {"completed"}, f"{ended}"


def test_the_schedules_reach_what_they_are_meant_to_reach() -> None:
    """Rows in flight are stored and replayed, and checkpoints run out of time at every stage."""
    in_flight = replayed = changed = aligned = 0
    for seed in range(12):
        timeout = (None, "5ms", "100ms")[seed % 3]
        world = World(Setting("two keyed steps", seed, unaligned=True, aligned_timeout=timeout, rows=12, timeout="10s"))
        run_to_the_end(world).judge()
        completed = [info for info in world.ended if info.status.value == "completed"]
        in_flight += sum(info.in_flight_bytes > 0 for info in completed)
        changed += sum(info.unaligned for info in completed if timeout)
        aligned += sum(not info.unaligned for info in completed if timeout)
        replayed += sum(
            bool(running._state.in_flight)
            for running in world.subtasks.values()
            if isinstance(running, OperatorSubtask)
        )
    assert in_flight > 10
    assert replayed > 1, "no attempt began with rows in flight"
    assert changed > 3, "no alignment ran out of time"
    assert aligned > 1, "every alignment ran out of time"


def test_over_its_budget_a_checkpoint_is_given_up_with_the_reason_and_the_job_goes_on() -> None:
    setting = Setting("two keyed steps", 3, unaligned=True, rows=12, crashes=0, timeout="10s")
    world = run_and_judge(replace(setting, limits=replace(setting.limits, in_flight_bytes=300)))
    reasons = [info.failure_reason for info in world.ended if info.failure_reason]
    assert reasons
    assert all("rows of more than 300 bytes were on their way to it" in reason for reason in reasons), reasons
    assert world.ended[-1].status.value == "completed", "nothing is in flight when all input ended"


# --- broken on purpose ------------------------------------------------------------------------------------------------


def _r14_the_gate_stays_shut(patch: Patch) -> None:
    patch.setattr(WaitingForChannels, "gate_is_open", property(lambda self: False))


def _r15_rows_behind_the_barrier_are_recorded_too(patch: Patch) -> None:
    def add(self: Recording, row: Row) -> None:
        if row.kind is RowKind.DATA:
            self.rows.append(row)

    patch.setattr(Recording, "add", add)


def _r15_the_mark_of_a_row_is_a_flag(patch: Patch) -> None:
    """Behind any barrier, whatever its number."""

    def add(self: Recording, row: Row) -> None:
        if row.kind is RowKind.DATA and not row.behind:
            self.rows.append(row)

    patch.setattr(Recording, "add", add)


def _r15_what_arrives_behind_the_cut_is_not_recorded(patch: Patch) -> None:
    patch.setattr(Intake, "_let_in", lambda self, row: None)


def _r15_the_rest_of_a_batch_is_forgotten(patch: Patch) -> None:
    patch.setattr(operator_subtask, "_unprocessed", lambda rows, batches, done: [])


def _r15_the_whole_batch_is_recorded(patch: Patch) -> None:
    patch.setattr(operator_subtask, "_unprocessed", lambda rows, batches, done: list(rows))


def _r15_the_cut_comes_behind_what_waits(patch: Patch) -> None:
    real = Intake.take

    def take(self: Intake) -> Any:
        due, self._due = self._due, None
        item = real(self)
        self._due = due
        return due if item is None else item

    patch.setattr(Intake, "take", take)


def _r19_restored_rows_are_not_replayed(patch: Patch) -> None:
    patch.setattr(OperatorSubtask, "_restored_rows", lambda self: iter(()))


def _r19_restored_rows_are_not_recorded_again(patch: Patch) -> None:
    real = Recording.add

    def add(self: Recording, row: Row) -> None:
        if row.seq >= 0:
            real(self, row)

    patch.setattr(Recording, "add", add)


def _r20_the_end_is_not_waited_for(patch: Patch) -> None:
    patch.setattr(WaitingForChannels, "channel_ended", lambda self, channel: (self, ()))


def _r24_what_a_combine_held_is_narrowed_to_own_keys(patch: Patch) -> None:
    real = RestoredTables.__init__

    def init(self: RestoredTables, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **{**kwargs, "whole": False})

    patch.setattr(RestoredTables, "__init__", init)


def _acknowledged_before_the_rows_are_there(patch: Patch) -> None:
    patch.setattr(Intake, "record", _finish_at_once)


def _finish_at_once(self: Intake, mark: CutMark, rest: Any) -> None:
    rows = (*rest, *(item for item in self._inbox if isinstance(item, Row)))
    self._due = None
    self._events.recorded(Recording(mark.checkpoint, rows))
    self._barriers, _ = self._barriers.checkpoint_aborted(mark.checkpoint)


def _a_buffer_is_flushed_behind_the_barrier(patch: Patch) -> None:
    real = Subtask._cut

    def cut(self: Subtask, mark: CutMark, rest: Any = ()) -> Any:
        records, self._outputs._records = self._outputs._records, list  # type: ignore[method-assign]
        try:
            yield from real(self, mark, rest)
        finally:
            self._outputs._records = records  # type: ignore[method-assign]

    patch.setattr(Subtask, "_cut", cut)


WHEREVER = {"unaligned": True, "preempted": True, "hesitant": True}
LONG = {**WHEREVER, "rows": 16, "timeout": "10s"}
FULL_ROWS = FlowLimits(
    inbox_bytes=2000, hold_bytes=600, hold_memory_bytes=300, payload_bytes=600, linger_seconds=0.01, max_slice_rows=1
)
"""Several records in a row of the exchange, and one in a slice: cuts come in the middle."""
VARIANTS = (
    Variant("r14", _r14_the_gate_stays_shut, "two keyed steps", LONG),
    Variant("r15", _r15_rows_behind_the_barrier_are_recorded_too, "two sources", LONG),
    Variant("r15", _r15_the_mark_of_a_row_is_a_flag, "two sources", LONG),
    Variant("r15", _r15_what_arrives_behind_the_cut_is_not_recorded, "two sources", LONG),
    Variant("r15", _r15_the_rest_of_a_batch_is_forgotten, "two keyed steps", {**LONG, "limits": FULL_ROWS}),
    Variant("r15", _r15_the_whole_batch_is_recorded, "two keyed steps", {**LONG, "limits": FULL_ROWS}),
    Variant("r15", _r15_the_cut_comes_behind_what_waits, "two sources", LONG),
    Variant("r19", _r19_restored_rows_are_not_replayed, "keyed", LONG),
    Variant("r19", _r19_restored_rows_are_not_recorded_again, "keyed", {**LONG, "crashes": 9}),
    Variant("r20", _r20_the_end_is_not_waited_for, "two sources", WHEREVER),
    Variant("r24", _r24_what_a_combine_held_is_narrowed_to_own_keys, "aggregate", {**LONG, "crashes": 9}),
    Variant("chandy", _acknowledged_before_the_rows_are_there, "two sources", LONG),
    Variant("chandy", _a_buffer_is_flushed_behind_the_barrier, "two keyed steps", {**LONG, "limits": FULL_ROWS}),
)
MOST_SEEDS = 60


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_broken_rule_is_caught(variant: Variant, monkeypatch: Patch) -> None:
    check_that_it_is_caught(variant, monkeypatch, lambda setting: judge_every_cut(run_and_judge(setting)), MOST_SEEDS)
