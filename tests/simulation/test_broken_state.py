"""Rules about state (34, 35, 37 to 40), each broken on purpose, and noticed by what the real code passes.

Rule 36, and what else happens to rows in flight at another parallelism, is broken in test_unaligned_rescale; that nothing builds
on a checkpoint which is not confirmed (rule 38), in test_incremental.
"""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater import pipeline
from cutwater.checkpoint import restore
from cutwater.checkpoint.completed import CompletedCheckpoint
from cutwater.checkpoint.damage import Candidate
from cutwater.checkpoint.events import ManualTriggerRequested, RequestId
from cutwater.checkpoint.fit import StoredUid
from cutwater.checkpoint.job_store import JobStore, Restored
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.start import Resume, StartFresh
from cutwater.errors import DamagedCheckpoint, RestoreError
from cutwater.flow.ids import CheckpointId
from cutwater.operators.keyed_process import KeyedProcessOperator
from cutwater.operators.operator import OperatorSnapshot
from cutwater.state.frozen import FilePlace, FrozenTable
from cutwater.state.memory_increments import FrozenIncrement
from cutwater.state.memory_rows import FrozenRows
from cutwater.state.restored_rows import RowNumber
from cutwater.state.rocksdb_cut import StoreCut
from cutwater.state.rocksdb_rows import RocksDBRowTable
from cutwater.state.row_layers import newest_items
from cutwater.state.stored import Form, StoredTable
from cutwater.subtask import outputs
from cutwater.subtask.limits import FlowLimits
from cutwater.testing.clock import ManualClock
from cutwater.testing.run import _rows as decoded
from cutwater.testing.simulation import Simulation
from tests.simulation.test_claim import began_with, restored, take_next
from tests.simulation.test_snapshot_content import changed_by_a_restore, taken
from tests.simulation.topologies import RECORD, Count, Numbers, Records, Topology
from tests.simulation.variants import Patch, Variant, check_that_it_is_caught
from tests.simulation.world import Setting, World, judge_every_cut, run_and_judge, run_to_the_end

MOST_SEEDS = 40
Json = Any

# --- what random schedules notice: a crash, and the restore behind it -------------------------------------------------


def _r34_rows_go_to_another_subtask_than_owns_their_key_group(patch: Patch) -> None:
    real = outputs.key_groups
    patch.setattr(outputs, "key_groups", lambda hashes, groups: groups - 1 - real(hashes, groups))


def _r34_the_hash_is_salted_in_each_attempt(patch: Patch) -> None:
    real, start = outputs.key_groups, World.start_attempt
    salt = 0

    def start_attempt(self: World, *args: Any) -> None:
        nonlocal salt
        salt = self.attempts
        start(self, *args)

    def key_groups(hashes: Any, groups: int) -> Any:
        return (real(hashes, groups) + salt * groups // 2) % groups

    patch.setattr(World, "start_attempt", start_attempt)
    patch.setattr(outputs, "key_groups", key_groups)


def _r39_timers_are_left_out_of_the_snapshot(patch: Patch) -> None:
    real = KeyedProcessOperator.snapshot

    def snapshot(self: KeyedProcessOperator, checkpoint: CheckpointId) -> OperatorSnapshot:
        taken = real(self, checkpoint)
        return replace(taken, tables=[table for table in taken.tables if not table.name.startswith("timers.")])

    patch.setattr(KeyedProcessOperator, "snapshot", snapshot)


def _r40_newer_values_are_written_before_the_files_are_linked(patch: Patch) -> None:
    """What memory holds when they are linked, not what it held at the cut."""

    def freeze_into(self: RocksDBRowTable, cut: StoreCut) -> FrozenTable:
        frozen = self.freeze()
        cut.before_link(lambda: self._write_layers((self._top, *self._below)))
        return frozen

    patch.setattr(RocksDBRowTable, "freeze_into", freeze_into)


def _r40_what_waits_in_memory_is_not_written_before_the_files_are_linked(patch: Patch) -> None:
    patch.setattr(StoreCut, "before_link", lambda self, write: None)


ON_DISK = {"backend": cw.RocksDB(incremental=True, cache=4000), "rows": 10, "crashes": 4, "timeout": "10s"}
VARIANTS: Sequence[Variant] = (
    Variant("r34", _r34_rows_go_to_another_subtask_than_owns_their_key_group, "keyed", {"crashes": 4}),
    Variant("r34", _r34_the_hash_is_salted_in_each_attempt, "keyed", {"crashes": 4}),
    Variant("r39", _r39_timers_are_left_out_of_the_snapshot, "timers", {"crashes": 4, "rows": 12}),
    Variant("r40", _r40_newer_values_are_written_before_the_files_are_linked, "keyed", ON_DISK),
    Variant("r40", _r40_what_waits_in_memory_is_not_written_before_the_files_are_linked, "keyed", ON_DISK),
)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_broken_rule_is_caught(variant: Variant, monkeypatch: Patch) -> None:
    check_that_it_is_caught(variant, monkeypatch, run_and_judge, MOST_SEEDS)


# --- r35: what belongs to subtasks, at another parallelism and at the same --------------------------------------------


class Knows(cw.BroadcastProcess):
    """What it has seen of one stream, for itself and for everybody, and how far the other one has come."""

    own = cw.ListOperatorState("struct<split:int,v:long>")
    shared = cw.UnionOperatorState("struct<split:int,v:long>")
    told = cw.BroadcastState("int", "long")

    def open(self, ctx: Any) -> None:
        self.began_with = Counter((each.split, each.v) for each in self.shared)
        mine = [each for each in self.shared if each.split % ctx.parallelism == ctx.subtask]
        self.shared.clear()
        self.shared.extend(mine)

    def process(self, row: Any, ctx: Any) -> Any:
        self.own.append((row.split, row.v))
        self.shared.append((row.split, row.v))
        yield row

    def process_broadcast(self, row: Any, ctx: Any) -> Any:
        self.told[row.split] = row.v


def _knowing(a: cw.Stream, b: cw.Stream) -> None:
    a.connect(b.broadcast()).process(Knows, RECORD).uid("knows").collect("out")


@dataclass(frozen=True, slots=True)
class OfSubtasks(Setting):
    @property
    def shape(self) -> Topology:
        return Topology("knowing", _knowing, lambda p: {"out": Records(sources="a")}, sources=2)


class Knowing(World):
    """Looks at what the functions have when an attempt begins, and in the end."""

    def start_attempt(self, start: StartFresh | None = None) -> None:
        super().start_attempt(start)
        first, *others = functions = self.functions()
        assert all(each.began_with == first.began_with for each in others), "a union is for everybody"
        assert all(dict(each.told) == dict(first.told) for each in others), "what was broadcast is for everybody"
        assert _own(functions) == first.began_with, "an element of a list is for one of them"

    def functions(self) -> list[Any]:
        """In the order of their subtasks."""
        chains = [(subtask, running._chain) for subtask, running in self.subtasks.items()]
        return [chain._operators["knows"].fn for _, chain in sorted(chains, key=str) if "knows" in chain._operators]

    def judge(self) -> None:
        super().judge()
        functions = self.functions()
        assert _own(functions) == Counter(record[1:3] for record in self.sources[0].records())
        if self.setting.parallelism == self.sources[0]._splits:
            for index, each in enumerate(functions):
                assert {split for split, _ in each.own} == {index}, "at the same parallelism nothing moves"


def _own(functions: Sequence[Any]) -> Counter[tuple[int, int]]:
    return Counter((each.split, each.v) for function in functions for each in function.own)


def _dealt(patch: Patch, change: Callable[[list[dict[str, Json]]], None]) -> None:
    """At another parallelism, ``change`` what all subtasks get."""
    real = restore._deal_inline

    def deal(checkpoint: CompletedCheckpoint, stored: StoredUid, parallelism: int) -> list[tuple[Json, ...]]:
        dealt = real(checkpoint, stored, parallelism)
        change([own for part in dealt for own in part])
        return dealt

    patch.setattr(restore, "_deal_inline", deal)


def _r35_a_list_goes_to_everybody(patch: Patch) -> None:
    def change(dealt: list[dict[str, Json]]) -> None:
        everything = [entry for own in dealt for entry in own.get("list_state", ())]
        for own in dealt:
            own["list_state"] = everything

    _dealt(patch, change)


def _r35_a_list_is_dealt_out_at_the_same_parallelism(patch: Patch) -> None:
    real = restore._kept_inline

    def kept(stored: StoredUid) -> list[tuple[Json, ...]]:
        parts = real(stored)
        if not all(part and "list_state" in part[0] for part in parts):
            return parts
        moved = [*parts[1:], parts[0]]
        return [({**own, "list_state": other["list_state"]},) for (own,), (other,) in zip(parts, moved, strict=True)]

    patch.setattr(restore, "_kept_inline", kept)


def _r35_a_union_stays_with_whoever_wrote_it(patch: Patch) -> None:
    def kept(stored: StoredUid) -> list[tuple[Json, ...]]:
        own = dict(stored.inlines())
        return [(own[index],) if index in own else () for index in range(stored.parallelism)]

    patch.setattr(restore, "_kept_inline", kept)


def _r35_what_was_broadcast_goes_to_one_only(patch: Patch) -> None:
    def change(dealt: list[dict[str, Json]]) -> None:
        for own in dealt[1:]:
            own.pop("broadcast_state", None)

    _dealt(patch, change)


def judge_at_the_same(setting: Setting) -> World:
    world = run_to_the_end(Knowing(setting))
    world.judge()
    return world


def judge_at_another(setting: Setting) -> None:
    """Parallelism, behind each checkpoint."""
    judge_every_cut(judge_at_the_same(setting), setting.parallelism + 1)


OF_SUBTASKS = (
    (_r35_a_list_is_dealt_out_at_the_same_parallelism, judge_at_the_same),
    (_r35_a_union_stays_with_whoever_wrote_it, judge_at_the_same),
    (_r35_a_list_goes_to_everybody, judge_at_another),
    (_r35_what_was_broadcast_goes_to_one_only, judge_at_another),
)


@pytest.mark.parametrize(("break_it", "judge"), OF_SUBTASKS, ids=lambda each: each.__name__.removeprefix("_"))
def test_a_broken_rule_about_what_subtasks_know_is_caught(
    break_it: Callable[[Patch], None], judge: Callable[[Setting], object], monkeypatch: Patch
) -> None:
    variant = Variant("r35", break_it, "knowing", {"crashes": 4, "rows": 6, "timeout": "10s"}, OfSubtasks)
    check_that_it_is_caught(variant, monkeypatch, judge, MOST_SEEDS)


# --- r37: state that has no place in the program is refused, and an unchanged program finds its own -------------------


LITTLE_AT_A_TIME = FlowLimits(inbox_bytes=600, payload_bytes=64, linger_seconds=0.0, max_slice_rows=2)
"""So that a checkpoint comes in the middle."""


class Program(Simulation):
    """Goes on from what the store holds, if there is something."""

    def __init__(self, store: JobStore, build: Callable[[cw.Stream], object], max_parallelism: int) -> None:
        checkpointing = cw.Checkpointing("1h", storage=cw.memory_storage("1GB"))
        env = cw.Environment(parallelism=2, max_parallelism=max_parallelism, checkpointing=checkpointing)
        self.source = Numbers("a", 2, 60, hesitant=False)
        build(env.read(self.source, uid="a"))
        self.definition = replace(env.define("job", 2), limits=LITTLE_AT_A_TIME)
        super().__init__(self.definition, store, ManualClock(), random.Random(1).randrange, buffer_rows=2)

    def start_attempt(self, start: StartFresh | Resume | None = None) -> None:
        super().start_attempt(start if self.store.record() is None else None)

    def step_until(self, happened: Callable[[], bool]) -> None:
        while not happened():
            assert self.step() or self.advance_to_next_timer(), "it never came to that"


def counted(a: cw.Stream) -> None:
    a.key_by("k").process(Count, RECORD).uid("counts").collect("out")


def counted_elsewhere(a: cw.Stream) -> None:
    a.key_by("k").process(Count, RECORD).uid("totals").collect("out")


def counted_anonymously(a: cw.Stream) -> None:
    a.key_by("k").process(Count, RECORD).collect("out")


def lost_by(
    first: Callable[[cw.Stream], object], second: Callable[[cw.Stream], object], max_parallelism: int = 128
) -> int:
    """How many records are missing in the counts of the second program, which goes on where the first one was stopped."""
    store = JobStore(MemoryStorage(1 << 30), "job")
    before = Program(store, first, 128)
    before.step_until(lambda: sum(running.records_in for running in before.subtasks.values()) > 30)
    before.driver.handle(ManualTriggerRequested(RequestId(1)))
    before.step_until(lambda: RequestId(1) in before.answers)
    assert not before.finished
    before.driver.end("stopped")
    behind = Program(JobStore(store.storage, "job"), second, max_parallelism)
    behind.step_until(lambda: behind.finished)
    told = decoded(behind.store.collected.read(behind.definition.collected["out"].uid))
    latest = {row.k: row.n for row in sorted(told, key=lambda row: row.n)}
    return len(behind.source.records()) - sum(latest.values())


def test_a_program_goes_on_or_is_refused() -> None:
    assert lost_by(counted, counted) == lost_by(counted_anonymously, counted_anonymously) == 0
    with pytest.raises(RestoreError, match="uid 'counts'"):
        lost_by(counted, counted_elsewhere)
    with pytest.raises(RestoreError, match="max_parallelism=64"):
        lost_by(counted, counted, max_parallelism=64)


def test_rule_37_broken_state_without_an_operator_that_is_left_out_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(restore, "check_all_is_restored", lambda *args: None)
    assert lost_by(counted, counted_elsewhere) > 0


def test_rule_37_broken_keys_that_belong_to_other_key_groups_now_are_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(restore, "check_max_parallelism", lambda *args: None)
    assert lost_by(counted, counted, max_parallelism=64) > 0


def test_rule_37_broken_a_uid_that_is_another_one_each_time_is_caught(monkeypatch: Patch) -> None:
    real, numbers = pipeline.derived_uid, itertools.count()
    monkeypatch.setattr(pipeline, "derived_uid", lambda *args: f"{real(*args)}-{next(numbers)}")
    with pytest.raises(RestoreError, match="no operator for"):
        lost_by(counted_anonymously, counted_anonymously)


# --- r38: without claim nothing of what was restored is built on ------------------------------------------------------


def owners_of_the_first_files(folder: Path) -> set[str]:
    """Of the first checkpoint of a job that was restored from one of another, by its path."""
    _, path = began_with(folder)
    two = restored(folder, "two", path, claim=False)
    return {name.split("/")[0] for name in take_next(two).shared_files()}


def test_rule_38_broken_files_that_are_built_on_without_claim_are_caught(tmp_path: Path, monkeypatch: Patch) -> None:
    assert owners_of_the_first_files(tmp_path / "kept") == {"two"}
    real = JobStore.begin_restore

    def begin_restore(self: JobStore, candidate: Candidate) -> Restored:
        found = real(self, candidate)
        return found if candidate.path is None else found._replace(resumed=self.reserve_id())

    monkeypatch.setattr(JobStore, "begin_restore", begin_restore)
    with pytest.raises(DamagedCheckpoint, match="is missing"):
        owners_of_the_first_files(tmp_path / "broken")


# --- r39: a checkpoint of what was restored equals it -----------------------------------------------------------------


def _what_was_restored_is_left_out_until_it_is_touched(patch: Patch) -> None:
    def batches(self: FrozenRows) -> Iterator[pa.RecordBatch]:
        return self.form.batches(each for each in newest_items(self.layers) if type(each[1]) is not RowNumber)

    patch.setattr(FrozenRows, "batches", batches)


def _what_changed_since_the_restore_is_all_that_is_stored(patch: Patch) -> None:
    def store(self: FrozenIncrement, place: FilePlace) -> StoredTable:
        return self._whole(place) if self.changes is None else replace(place.write(self.changes), form=Form.CHANGES)

    patch.setattr(FrozenIncrement, "store", store)


@pytest.mark.parametrize(
    ("break_it", "backend"),
    [
        (_what_was_restored_is_left_out_until_it_is_touched, "memory"),
        (_what_changed_since_the_restore_is_all_that_is_stored, "memory, incremental"),
    ],
    ids=lambda each: each if isinstance(each, str) else each.__name__[1:],
)
def test_rule_39_broken_a_checkpoint_without_what_was_restored_is_caught(
    break_it: Callable[[Patch], None], backend: str, monkeypatch: Patch
) -> None:
    break_it(monkeypatch)
    assert changed_by_a_restore(taken(backend, 1))
