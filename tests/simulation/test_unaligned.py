"""Unaligned checkpoints, and aligned ones that run out of time, under random schedules (rules 9, 14 to 20, 24).

The same worlds and the same questions as in test_schedules: whatever is cut is a consistent cut, whatever is triggered ends.
"""

import re
from dataclasses import replace
from typing import Any
from weakref import WeakSet

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.barrier.unaligned import Aligning, WaitingForChannels
from cutwater.checkpoint.events import ManualTriggerRequested, RequestId
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.stored_tables import RestoredTables
from cutwater.checkpoint.verification import verify
from cutwater.control.messages import CutNow
from cutwater.errors import CutwaterError, DamagedCheckpoint, JobFailed
from cutwater.flow.envelope import Row, RowKind
from cutwater.flow.ids import CheckpointId
from cutwater.flow.watermarks import MIN_WATERMARK
from cutwater.operators import told_windows
from cutwater.operators.stored_watermark import stored_watermark
from cutwater.subtask import operator_subtask
from cutwater.subtask.chain import Chain
from cutwater.subtask.cut_mark import CutMark
from cutwater.subtask.intake import Intake
from cutwater.subtask.limits import FlowLimits
from cutwater.subtask.operator_subtask import OperatorSubtask
from cutwater.subtask.recording import Recording
from cutwater.subtask.spill import Spill
from cutwater.subtask.subtask import Subtask
from cutwater.testing.simulation import Action
from tests.simulation.test_broken_rules import (
    _r20_a_finished_subtask_keeps_its_end_to_itself,
    _r22_a_relay_keeps_barriers_to_itself,
    _r22_a_relay_mixes_up_the_order,
)
from tests.simulation.test_schedules import ANY_TOPOLOGY, COLLECTING, any_setting
from tests.simulation.timed_topologies import TIMED
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
    "late_open": st.booleans(),
    "lost": st.sampled_from((0.0, 0.0, 0.5, 1.0)),
    "short": st.booleans(),
}


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_exactly_once_nothing_is_lost_or_double_and_every_key_keeps_its_order(name: str) -> None:
    @settings(max_examples=12)
    @given(any_setting(st.just(name), **UNALIGNED))
    def holds(setting: Setting) -> None:
        run_and_judge(setting)

    holds()


@pytest.mark.parametrize("name", sorted(TIMED))
@pytest.mark.usefixtures("small_steps")
def test_what_a_watermark_makes_due_is_told_once_though_cuts_come_in_the_middle_of_it(name: str) -> None:
    @settings(max_examples=5)
    @given(any_setting(st.just(name), **UNALIGNED, rows=st.just(10)))
    def holds(setting: Setting) -> None:
        judge_every_cut(run_and_judge(setting))

    holds()


@pytest.mark.usefixtures("small_steps")
def test_cuts_come_in_the_middle_of_what_a_watermark_makes_due(monkeypatch: Patch) -> None:
    cuts = 0
    real = OperatorSubtask._cut_between_steps

    def between(self: OperatorSubtask) -> Any:
        nonlocal cuts
        cuts += self.intake.due_cut is not None
        return real(self)

    monkeypatch.setattr(OperatorSubtask, "_cut_between_steps", between)
    for name in sorted(TIMED):
        cuts = 0
        for seed in range(MOST_SEEDS):
            run_and_judge(Setting(name, seed, **FIRING))
            if cuts:
                break
        assert cuts > 0, f"{name}: no cut came between steps"


@pytest.mark.parametrize("name", ["two sources", "two keyed steps"])
def test_the_time_to_align_may_run_out_while_a_cut_is_taken(name: str, monkeypatch: Patch) -> None:
    """By barriers, and by the driver's word where the input is over."""
    ended = 0
    real = OperatorSubtask._source_snapshot

    def meanwhile(self: OperatorSubtask, checkpoint: CheckpointId) -> Any:
        nonlocal ended
        ended += self._ended
        self.on_message(CutNow(checkpoint, self._clock.wall()))
        return real(self, checkpoint)

    monkeypatch.setattr(OperatorSubtask, "_source_snapshot", meanwhile)
    for seed in range(10):
        run_and_judge(Setting(name, seed, unaligned=True, aligned_timeout="5s", short=True, timeout="10s", crashes=0))
    assert ended > 0, "nobody was cut whose input is over"


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
    in_flight = processed = replayed = changed = aligned = 0
    for seed in range(18):
        timeout = (None, "5ms", "100ms")[seed % 3]
        world = World(
            Setting("two keyed steps", seed, unaligned=True, aligned_timeout=timeout, rows=12, timeout="10s", crashes=0)
        )
        run_to_the_end(world, until=lambda world=world: any(info.in_flight_bytes for info in world.ended[-1:]))  # type: ignore[misc]
        if not world.finished:
            world.crash()
        run_to_the_end(world).judge()
        completed = [info for info in world.ended if info.status.value == "completed"]
        in_flight += sum(info.in_flight_bytes > 0 for info in completed)
        processed += sum(part.processed_bytes > 0 for info in completed for part in info.subtasks)
        changed += sum(info.unaligned for info in completed if timeout)
        aligned += sum(not info.unaligned for info in completed if timeout)
        replayed += sum(
            bool(running._state.in_flight)
            for running in world.subtasks.values()
            if isinstance(running, OperatorSubtask)
        )
    assert in_flight > 10
    assert processed > 3, "nobody went on while barriers were awaited"
    assert replayed > 1, "no attempt began with rows in flight"
    assert changed > 3, "no alignment ran out of time"
    assert aligned > 1, "every alignment ran out of time"


def test_a_checkpoint_is_unaligned_if_a_subtask_cut_so_and_not_if_only_the_storage_is_slow() -> None:
    class SlowStorage(World):
        is_slow = True

        def actions(self) -> list[Action]:
            return [each for each in super().actions() if not (self.is_slow and each.kind == "snapshot")]

    for delivered in (False, True):
        world = SlowStorage(
            Setting(
                "two keyed steps", 5, unaligned=True, aligned_timeout="100ms", crashes=0, timeout="10s", interval="1h"
            )
        )
        for _ in range(30):
            world.step()
        world.driver.handle(ManualTriggerRequested(RequestId(1)))
        while (delivered or not world.pending) and world.step():
            pass
        world.time.advance(0.2)
        world.driver.tick()
        world.is_slow = False
        while not world.ended:
            assert world.step() or world.advance_to_next_timer()
        stored = world.store.completed()[-1]
        parts = [part.metrics.unaligned for part in stored.subtasks]
        assert (world.ended[0].unaligned, stored.unaligned, any(parts)) == (not delivered,) * 3


def test_the_state_of_a_cut_that_overtakes_is_stored_behind_its_barriers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until they are there, storing would take the interpreter from the reader (rule 14): at most as long as the loop stands
    still for them."""
    begun: set[tuple[int, int]] = set()
    still_waited: list[bool] = []
    take, hand_over = OperatorSubtask._taken, Subtask._store_soon

    def taken(self: OperatorSubtask, mark: CutMark, rest: Any) -> None:
        begun.add((id(self), mark.checkpoint))
        take(self, mark, rest)

    def handed_over(self: Any, cut: Any, pause: float = 0.0) -> None:
        if cut.rows_follow:
            assert (id(self), cut.checkpoint) in begun
            still_waited.append(self.intake.recording == cut.checkpoint)
        hand_over(self, cut, pause)

    monkeypatch.setattr(OperatorSubtask, "_taken", taken)
    monkeypatch.setattr(Subtask, "_store_soon", handed_over)
    for seed in range(6):
        run_and_judge(Setting("two keyed steps", seed, unaligned=True, rows=12, crashes=0, timeout="10s"))
    assert still_waited.count(False) > 20
    assert still_waited.count(False) > still_waited.count(True)


def over_budget(**settings: Any) -> Setting:
    setting = Setting("two keyed steps", 3, unaligned=True, rows=12, crashes=0, timeout="10s", **settings)
    return replace(setting, limits=replace(setting.limits, in_flight_bytes=300))


def test_over_its_budget_a_checkpoint_is_given_up_with_the_reason_and_the_job_goes_on() -> None:
    world = run_and_judge(over_budget())
    reasons = [info.failure_reason for info in world.ended if info.failure_reason]
    assert reasons
    assert all("rows of more than 300 bytes were on their way to it" in reason for reason in reasons), reasons
    assert world.ended[-1].status.value == "completed", "nothing is in flight when all input ended"


def test_over_its_budget_a_checkpoint_counts_as_a_failed_one() -> None:
    with pytest.raises(CutwaterError, match=r"1 checkpoint failed; tolerable_failures=0.*\(max_in_flight\)"):
        run_to_the_end(World(over_budget(tolerable_failures=0)))


def test_rows_in_flight_that_were_changed_in_the_storage_are_not_replayed() -> None:
    """They have a checksum as all that is stored: another byte, and the checkpoint is damaged."""
    world = run_to_the_end(World(Setting("two keyed steps", 3, **{**LONG, "crashes": 0, "retain": 1})))
    moment = next(each for each in world.moments if _files_of_rows_in_flight(each))
    (name, *_) = _files_of_rows_in_flight(moment)
    content = bytearray(moment.read(name))
    content[len(content) // 2] ^= 1
    moment.put(name, bytes(content))
    with pytest.raises(DamagedCheckpoint, match=rf"{re.escape(name)} .* is damaged: it has checksum"):
        verify(moment, JobStore(moment, "simulated").completed()[-1])
    with pytest.raises(JobFailed, match=rf"{re.escape(name)} .* is damaged"):
        World(world.setting, moment)


def _files_of_rows_in_flight(moment: MemoryStorage) -> list[str]:
    latest = JobStore(moment, "simulated").completed()[-1]
    stored = [part.snapshot.in_flight for part in latest.subtasks]
    return [file.file for rows in stored if rows is not None for file in rows.table.files]


def test_the_adversary_loses_calls_opens_late_and_lets_rows_go_to_disk(monkeypatch: Patch) -> None:
    """What no setting reached would not be tested."""
    lost = waited = spilled = 0
    really_lost, really_kept = World._is_lost, Spill.keep

    def is_lost(self: World, subtask: Any, message: Any) -> bool:
        nonlocal lost
        gone = really_lost(self, subtask, message)
        lost += gone
        return gone

    def keep(self: Spill, row: Row) -> None:
        nonlocal spilled
        before = row.payload
        really_kept(self, row)
        spilled += row.payload is not before

    monkeypatch.setattr(World, "_is_lost", is_lost)
    monkeypatch.setattr(Spill, "keep", keep)

    class Watched(World):
        def _begin(self, subtask: Any, level: int, partition: int) -> None:
            super()._begin(subtask, level, partition)
            action, inlet = self._unopened[-1], self._exchange.inlet(level, partition)

            def opened() -> None:
                nonlocal waited
                waited += bool(inlet.rows and self.subtasks[subtask]._state.in_flight)
                action.run()

            self._unopened[-1] = replace(action, run=opened)

    for seed in range(5):
        world = Watched(Setting("two keyed steps", seed, **{**LONG, "crashes": 9, "late_open": True, "lost": 0.5}))
        run_to_the_end(world).judge()
    assert lost > 5
    assert spilled > 5
    assert waited > 0, "nothing ever waited for a subtask that had rows to replay"


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


def _r19_rows_are_read_before_those_that_are_replayed(patch: Patch) -> None:
    def begin(self: World, subtask: Any, level: int, partition: int) -> None:
        self._read(subtask, level, partition)
        self._unopened.append(Action("open", str(subtask), lambda: self._open(subtask, level, partition)))

    patch.setattr(World, "_begin", begin)


def _r19_replayed_rows_stand_behind_what_came_meanwhile(patch: Patch) -> None:
    """The same race, where nobody notices that rows came too early."""
    _r19_rows_are_read_before_those_that_are_replayed(patch)

    def replay(self: Intake, rows: Any) -> None:
        for row in rows:
            self._inbox.append(row)

    patch.setattr(Intake, "replay", replay)


def _r9_an_abort_behind_the_cut_leaves_the_recording(patch: Patch) -> None:
    patch.setattr(WaitingForChannels, "checkpoint_aborted", lambda self, checkpoint: (self, ()))


def _r14_a_barrier_is_no_trigger(patch: Patch) -> None:
    """Only the driver's call is: whoever missed it never cuts."""
    real = Aligning.barrier_arrived

    def arrived(self: Aligning, channel: Any, checkpoint: Any, *, unaligned: bool = False) -> Any:
        return (self, ()) if unaligned else real(self, channel, checkpoint)

    patch.setattr(Aligning, "barrier_arrived", arrived)


def _r25_a_row_on_disk_is_there_for_the_snapshot_only(patch: Patch) -> None:
    real = Recording.add

    def add(self: Recording, row: Row) -> None:
        copied = replace(row)
        real(self, copied)
        if self.rows and self.rows[-1] is copied and not isinstance(copied.payload, pa.Buffer):
            row.payload = pa.py_buffer(b"")

    patch.setattr(Recording, "add", add)


def _r25_a_segment_is_written_over_for_the_next_checkpoint(patch: Patch) -> None:
    segments: dict[Any, Any] = {}
    have_written: WeakSet[Spill] = WeakSet()
    real = Spill.keep

    def keep(self: Spill, row: Row) -> None:
        self._segment = segments.get(self._folder)
        if self not in have_written and self._segment is not None:
            self._segment.size = 0
        before = row.payload
        real(self, row)
        if row.payload is not before:
            have_written.add(self)
        segments[self._folder] = self._segment

    patch.setattr(Spill, "keep", keep)


def _a_cut_comes_in_the_middle_of_a_window(patch: Patch) -> None:
    patch.setattr(Chain, "may_be_cut", property(lambda self: True))


def _the_rest_of_a_firing_waits_for_the_next_watermark(patch: Patch) -> None:
    patch.setattr(Chain, "resuming", lambda self: iter(()))


def _what_was_told_in_a_firing_is_not_frozen(patch: Patch) -> None:
    patch.setattr(told_windows, "stored_watermark", lambda time, due=None: stored_watermark(MIN_WATERMARK, due))


def _r24_what_a_combine_held_is_narrowed_to_own_keys(patch: Patch) -> None:
    real = RestoredTables.__init__

    def init(self: RestoredTables, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **{**kwargs, "whole": False})

    patch.setattr(RestoredTables, "__init__", init)


def _acknowledged_before_the_rows_are_there(patch: Patch) -> None:
    patch.setattr(Intake, "record", _finish_at_once)


def _finish_at_once(self: Intake, mark: CutMark, rest: Any) -> None:
    self._due = None
    heard = self._heard.cut(mark.checkpoint)
    assert heard is not None
    recording = Recording(mark.checkpoint, heard, self._limits.in_flight_bytes, self._new_spill())
    for row in (*rest, *self._inbox.rows()):
        recording.add(row)
    self._events.recorded(recording)
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
MUCH_AT_ONCE = replace(FULL_ROWS, inbox_bytes=3000, max_slice_rows=4)
OPENED_LATE = {**LONG, "late_open": True, "crashes": 9}
FIRING = {**LONG, "crashes": 0, "triggers": 0.1, "limits": MUCH_AT_ONCE}
VARIANTS = (
    Variant("r14", _r14_the_gate_stays_shut, "two keyed steps", LONG),
    Variant("r15", _r15_rows_behind_the_barrier_are_recorded_too, "two sources", LONG),
    Variant("r15", _r15_the_mark_of_a_row_is_a_flag, "two sources", LONG),
    Variant("r15", _r15_what_arrives_behind_the_cut_is_not_recorded, "two sources", LONG),
    Variant("r15", _r15_the_rest_of_a_batch_is_forgotten, "two keyed steps", {**LONG, "limits": FULL_ROWS}),
    Variant("r15", _r15_the_whole_batch_is_recorded, "two keyed steps", {**LONG, "limits": FULL_ROWS}),
    Variant("r15", _r15_the_cut_comes_behind_what_waits, "two sources", LONG),
    Variant("r19", _r19_restored_rows_are_not_replayed, "keyed", LONG),
    Variant("r19", _r19_restored_rows_are_not_recorded_again, "keyed", {**LONG, "crashes": 9}, first_seed=7),
    Variant("r20", _r20_the_end_is_not_waited_for, "two sources", WHEREVER),
    Variant("r24", _r24_what_a_combine_held_is_narrowed_to_own_keys, "aggregate", {**LONG, "crashes": 9}, first_seed=5),
    Variant("r19", _r19_rows_are_read_before_those_that_are_replayed, "two keyed steps", OPENED_LATE),
    Variant("r19", _r19_replayed_rows_stand_behind_what_came_meanwhile, "two keyed steps", OPENED_LATE),
    Variant("r9", _r9_an_abort_behind_the_cut_leaves_the_recording, "two sources", WHEREVER),
    Variant("r14", _r14_a_barrier_is_no_trigger, "two keyed steps", {**LONG, "lost": 1.0, "crashes": 0}),
    Variant("r22", _r22_a_relay_keeps_barriers_to_itself, "relay", LONG),
    Variant("r22", _r22_a_relay_mixes_up_the_order, "relay", LONG),
    Variant("r20", _r20_a_finished_subtask_keeps_its_end_to_itself, "two sources", {**LONG, "short": True}),
    Variant("r25", _r25_a_row_on_disk_is_there_for_the_snapshot_only, "two sources", LONG),
    Variant("r25", _r25_a_segment_is_written_over_for_the_next_checkpoint, "two keyed steps", LONG),
    Variant("steps", _a_cut_comes_in_the_middle_of_a_window, "sliding", FIRING, first_seed=19),
    Variant("steps", _the_rest_of_a_firing_waits_for_the_next_watermark, "timers", FIRING, first_seed=40),
    Variant("steps", _what_was_told_in_a_firing_is_not_frozen, "kept", FIRING),
    Variant("chandy", _acknowledged_before_the_rows_are_there, "two sources", LONG),
    Variant("chandy", _a_buffer_is_flushed_behind_the_barrier, "two keyed steps", {**LONG, "limits": FULL_ROWS}),
)
MOST_SEEDS = 60


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.usefixtures("small_steps")
def test_a_broken_rule_is_caught(variant: Variant, monkeypatch: Patch) -> None:
    check_that_it_is_caught(variant, monkeypatch, lambda setting: judge_every_cut(run_and_judge(setting)), MOST_SEEDS)
