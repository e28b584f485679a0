"""The contract of state backends: ours keep it, and its checks find backends that do not."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state import rocksdb_buckets
from cutwater.state.frozen import FrozenTable
from cutwater.state.memory import IncrementalMemoryStore, MemoryStore
from cutwater.state.memory_aggregates import MemoryAggregateTable
from cutwater.state.memory_buckets import MemoryBuckets
from cutwater.state.memory_increments import Increments
from cutwater.state.memory_join import MemoryJoin
from cutwater.state.memory_panes import MemoryPanes, PanesMark
from cutwater.state.memory_rows import MemoryRowTable
from cutwater.state.row_layers import RowForm
from cutwater.state.stored import StoredState
from cutwater.state.tracked_aggregates import TrackedAggregateTable
from cutwater.state.tracked_panes import TrackedPanes
from cutwater.state.tracked_rows import TrackedRowTable
from cutwater.testing import STATE_CHECKS, check_state_backend
from cutwater.testing.bucket_contract import buckets_are_read_as_they_were_whatever_comes_and_is_frozen_meanwhile
from cutwater.testing.handover_contract import (
    stores_have_all_that_operators_call,
    unknown_and_repeated_fates_change_nothing,
    what_a_store_says_that_it_took_over_is_there,
)
from cutwater.testing.increment_contract import increments_add_up_whatever_completes_and_whenever_that_is_heard
from cutwater.testing.many_tables_contract import (
    every_table_of_a_store_is_frozen_each_time,
    many_tables_are_restored_at_another_parallelism_and_back,
)
from cutwater.testing.state_contract import Check


@pytest.mark.parametrize("check", STATE_CHECKS, ids=lambda check: check.__name__)
def test_memory(check: Check) -> None:
    check(cw.Memory())


@pytest.mark.parametrize("check", STATE_CHECKS, ids=lambda check: check.__name__)
def test_incremental_memory(check: Check) -> None:
    check(cw.Memory(incremental=True))


@pytest.mark.parametrize(
    ("cache", "incremental"),
    [(1, False), (4000, False), (4000, True)],
    ids=["nothing cached", "a little cached", "incremental"],
)
@pytest.mark.parametrize("check", STATE_CHECKS, ids=lambda check: check.__name__)
def test_rocksdb(check: Check, cache: int, tmp_path: Path, *, incremental: bool) -> None:
    check(cw.RocksDB(incremental=incremental, cache=cache, local_directories=[str(tmp_path)]))


@pytest.mark.parametrize("cache", [1, 4000])
def test_rocksdb_reads_buckets_by_key_group(cache: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb_buckets, "SHARE_ROWS", 1)
    monkeypatch.setattr(rocksdb_buckets, "STEP_PARTS", 1)
    backend = cw.RocksDB(incremental=True, cache=cache, local_directories=[str(tmp_path)])
    buckets_are_read_as_they_were_whatever_comes_and_is_frozen_meanwhile(backend)


@dataclass(frozen=True)
class Broken:
    """Memory, but its stores are of another class."""

    store: Callable[[str, KeyGroupRange, int], MemoryStore]
    incremental: bool = False
    asynchronous: bool = True

    def open(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> MemoryStore:
        return self.store(uid, key_groups, max_parallelism)


class ReadsWhatIsThereLater(MemoryStore):
    def freeze(self, checkpoint: CheckpointId | None = None) -> list[FrozenTable]:
        return [LateTable(self, frozen) for frozen in super().freeze(checkpoint)]


@dataclass
class LateTable:
    store: MemoryStore
    frozen: FrozenTable

    @property
    def name(self) -> str:
        return self.frozen.name

    @property
    def schema(self) -> pa.Schema:
        return self.frozen.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        [now] = [each for each in MemoryStore.freeze(self.store) if each.name == self.name]
        return now.batches()

    def release(self) -> None:
        self.frozen.release()


class TakesEveryKeyGroup(MemoryStore):
    def _own(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


class ForgetsWhatCameEarly(MemoryStore):
    def restore(self, name: str, batches: Any) -> None:
        if name in self._tables:
            super().restore(name, batches)


class OverwritesInPlace(MemoryStore):
    def rows(self, name: str, keys: Any, value: Any, slot: str | None = None) -> Any:
        class Table(MemoryRowTable):
            def own(self, key: Any, copy: Callable[[Any], Any]) -> Any:
                return self.get(key)

        table = Table(RowForm.of(self._uid, name, keys, value, self._max_parallelism, slot))
        self._add(table)
        return table


class TellsNoNull(MemoryStore):
    def rows(self, name: str, keys: Any, value: Any, slot: str | None = None) -> Any:
        class Table(MemoryRowTable):
            def put(self, key: Any, value: Any) -> None:
                super().put("" if key is None else key, value)

        table = Table(RowForm.of(self._uid, name, keys, value, self._max_parallelism, slot))
        self._add(table)
        return table


class DropsNoPane(MemoryStore):
    def panes(self, *arguments: Any) -> Any:
        class Table(MemoryPanes):
            def drop(self, pane: int) -> None: ...

        table = Table(self._uid, *arguments, self._max_parallelism)
        self._add(table)
        return table


class JoinsBackwards(MemoryStore):
    def join(self, *arguments: Any) -> Any:
        join = super().join(*arguments)
        assert isinstance(join, MemoryJoin)

        class Table:
            def __getattr__(self, name: str) -> Any:
                return getattr(join, name)

            def matches(self, *asked: Any) -> Any:
                which, rows = join.matches(*asked)
                return which[::-1], rows.take(pa.array(range(rows.num_rows)[::-1], pa.int64()))

        return Table()


class ReadsBucketsAsTheyBecome(MemoryStore):
    def buckets(self, *arguments: Any) -> Any:
        class Table(MemoryBuckets):
            def read(self, buckets: Iterable[int]) -> Iterator[pa.RecordBatch]:
                return (batch for bucket in buckets for batch in self._of[bucket].chunks)

        table = Table(*arguments, self._max_parallelism)
        self._add(table)
        return table


class SharesKeys(MemoryStore):
    def buckets(self, *arguments: Any) -> Any:
        class Table(MemoryBuckets):
            def shares(self, buckets: Iterable[int]) -> Iterator[Iterator[pa.RecordBatch]]:
                return iter([iter([batch]) for batch in self.read(buckets)])

        table = Table(*arguments, self._max_parallelism)
        self._add(table)
        return table


class LosesWhatIsFarBehind(MemoryStore):
    def restore(self, name: str, batches: Any) -> None:
        def near() -> Iterator[pa.RecordBatch]:
            left = 40_000
            for batch in batches:
                yield batch.slice(0, left)
                left -= min(left, batch.num_rows)

        super().restore(name, near())


class ForgetsARowInAThousand(MemoryStore):
    def rows(self, name: str, keys: Any, value: Any, slot: str | None = None) -> Any:
        class Table(MemoryRowTable):
            puts = 0

            def put(self, key: Any, value: Any) -> None:
                self.puts += 1
                if self.puts % 1000:
                    super().put(key, value)

        table = Table(RowForm.of(self._uid, name, keys, value, self._max_parallelism, slot))
        self._add(table)
        return table


class AddsUpCoarsely(MemoryStore):
    def aggregates(self, *arguments: Any) -> Any:
        class Table(MemoryAggregateTable):
            def read(self, rows: Any) -> Any:
                return [
                    column.cast(pa.float32()).cast(pa.float64()) if pa.types.is_float64(column.type) else column
                    for column in super().read(rows)
                ]

        table = Table(self._uid, *arguments, self._max_parallelism)
        self._add(table)
        return table


class FreezesTwoTables(MemoryStore):
    def freeze(self, checkpoint: CheckpointId | None = None) -> list[FrozenTable]:
        return super().freeze(checkpoint)[:2]


class ForgetsATableInTheSeventhFreeze(MemoryStore):
    freezes = 0

    def freeze(self, checkpoint: CheckpointId | None = None) -> list[FrozenTable]:
        self.freezes += 1
        return super().freeze(checkpoint)[: -1 if self.freezes == 7 else None]


class RestoresTwoTables(MemoryStore):
    def restore(self, name: str, batches: Any) -> None:
        if name in self._early or len(self._early) < 2:
            super().restore(name, batches)


class AdoptsUnseen(MemoryStore):
    def adopt(self, state: StoredState) -> Collection[str]:
        return [table.state for table in state.stored]


class ResumesUnseen(MemoryStore):
    def resume(self, checkpoint: CheckpointId, state: StoredState) -> Collection[str]:
        return [table.state for table in state.stored]


class AdoptsWithoutAWord(MemoryStore):
    def adopt(self, state: StoredState) -> Any:
        return None


class ResumesWhatIsNotThere(MemoryStore):
    def resume(self, checkpoint: CheckpointId, state: StoredState) -> Collection[str]:
        return ["another"]


class HasNoAdopt(MemoryStore):
    adopt = None  # type: ignore[assignment]


class HasNoConfirmOrAbort(MemoryStore):
    confirm = abort = None  # type: ignore[assignment]


class HasNoResume(MemoryStore):
    resume = None  # type: ignore[assignment]


class KnowsWhatItFroze(MemoryStore):
    def __init__(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> None:
        super().__init__(uid, key_groups, max_parallelism)
        self.frozen: list[CheckpointId | None] = []
        self.confirmed: list[CheckpointId] = []

    def freeze(self, checkpoint: CheckpointId | None = None) -> list[FrozenTable]:
        self.frozen.append(checkpoint)
        return super().freeze(checkpoint)


class AbortsOnlyWhatItFroze(KnowsWhatItFroze):
    def abort(self, checkpoint: CheckpointId) -> None:
        self.frozen.remove(checkpoint)


class ConfirmsOnlyWhatItFroze(KnowsWhatItFroze):
    def confirm(self, checkpoint: CheckpointId) -> None:
        self.frozen.index(checkpoint)


class ConfirmsOnce(KnowsWhatItFroze):
    def confirm(self, checkpoint: CheckpointId) -> None:
        if checkpoint in self.confirmed:
            raise ValueError(f"{checkpoint} is confirmed")
        self.confirmed.append(checkpoint)


ONE_STORE = MemoryStore("contract", KeyGroupRange(0, 127), 128)


def one_for_all(*_: Any) -> MemoryStore:
    return ONE_STORE


@pytest.mark.parametrize(
    ("store", "says"),
    [
        (ReadsWhatIsThereLater, "after the cut"),
        (TakesEveryKeyGroup, "key groups of others"),
        (ForgetsWhatCameEarly, "restored value"),
        (OverwritesInPlace, "at the cut"),
        (TellsNoNull, "value under None"),
        (DropsNoPane, "panes after 4 writes"),
        (JoinsBackwards, "join after 1 writes"),
        (ReadsBucketsAsTheyBecome, "rows of buckets as they were"),
        (SharesKeys, "keys that are in two shares"),
        (LosesWhatIsFarBehind, "wrong restored rows of"),
        (ForgetsARowInAThousand, "wrong rows of"),
        (AddsUpCoarsely, "wrong sums of"),
        (FreezesTwoTables, "tables that freeze leaves out"),
        (AdoptsUnseen, "adopt says that it took over aggregates"),
        (HasNoAdopt, "methods that the store lacks"),
        (AbortsOnlyWhatItFroze, "abort of a checkpoint that was never frozen"),
        (one_for_all, "declared twice"),
        (lambda *_: ONE_STORE, "sent to workers: .*pickle"),
    ],
)
def test_a_backend_that_breaks_the_contract_is_found(store: Any, says: str) -> None:
    with pytest.raises(AssertionError) as found:
        check_state_backend(Broken(store))
    assert re.search(says, str(found.value))


@pytest.mark.parametrize("incremental", [False, True], ids=["whole", "incremental"])
@pytest.mark.parametrize(
    ("check", "store", "says"),
    [
        (every_table_of_a_store_is_frozen_each_time, FreezesTwoTables, r"leaves out: \['buckets_0'"),
        (
            every_table_of_a_store_is_frozen_each_time,
            ForgetsATableInTheSeventhFreeze,
            r"leaves out: \['rows_by_slot_2'\]",
        ),
        (many_tables_are_restored_at_another_parallelism_and_back, RestoresTwoTables, "one of 18 tables"),
        (what_a_store_says_that_it_took_over_is_there, AdoptsUnseen, "adopt says that it took over aggregates"),
        (what_a_store_says_that_it_took_over_is_there, ResumesUnseen, "resume says that it took over aggregates"),
        (what_a_store_says_that_it_took_over_is_there, AdoptsWithoutAWord, "adopt gives None instead of names"),
        (what_a_store_says_that_it_took_over_is_there, ResumesWhatIsNotThere, r"resume gives \['another'\] instead"),
        (stores_have_all_that_operators_call, HasNoAdopt, r"the store lacks: \['adopt'\]"),
        (stores_have_all_that_operators_call, HasNoConfirmOrAbort, r"the store lacks: \['confirm', 'abort'\]"),
        (stores_have_all_that_operators_call, HasNoResume, r"the store lacks: \['resume'\]"),
        (
            unknown_and_repeated_fates_change_nothing,
            AbortsOnlyWhatItFroze,
            "abort of .* never frozen raises ValueError",
        ),
        (unknown_and_repeated_fates_change_nothing, ConfirmsOnlyWhatItFroze, "confirm of .* never frozen raises"),
        (
            unknown_and_repeated_fates_change_nothing,
            ConfirmsOnce,
            "confirm of .* for the second time raises ValueError",
        ),
    ],
)
def test_a_store_that_operators_cannot_rely_on_is_found(
    check: Check, store: Any, says: str, *, incremental: bool
) -> None:
    with pytest.raises(AssertionError, match=says):
        check(Broken(store, incremental=incremental))


class BuildsOnWhatFailed(Increments):
    """On the last freeze, whether it was confirmed or not."""

    def freeze(self, checkpoint: CheckpointId, tables: Any, frozen: Any) -> list[FrozenTable]:
        self._base = next(reversed(self._marks), None)
        return super().freeze(checkpoint, tables, frozen)


class TakesTheLastFreezeForConfirmed(Increments):
    """Whichever it is told of."""

    def confirm(self, checkpoint: CheckpointId, tables: Any) -> None:
        super().confirm(max(self._marks, default=checkpoint), tables)


class ForgetsThatItWasResumed(Increments):
    """What was restored is taken for new and for old at once: changes are told since nothing."""

    def _since(self, name: str, table: Any) -> Any:
        return table.mark() if self._base == self._resumed is not None else super()._since(name, table)


class ForgetsTheDeleted(TrackedRowTable):
    def delete(self, key: Any) -> None:
        super().delete(key)
        self._top.pop(key, None)


class KeepsDroppedPanes(TrackedPanes):
    def changes(self, since: Any, frozen: FrozenTable) -> Any:
        return super().changes(PanesMark(since.stamp, {}), frozen)


class KnowsOnlyNewRows(TrackedAggregateTable):
    def changes(self, since: Any, frozen: FrozenTable) -> Any:
        return super().changes(since._replace(stamp=self.stamp), frozen)


def with_increments(increments: type[Increments]) -> Callable[..., MemoryStore]:
    def opened(*arguments: Any) -> MemoryStore:
        store = IncrementalMemoryStore(*arguments)
        store._increments = increments()
        return store

    return opened


def with_table(kind: str, table: Any) -> Callable[..., MemoryStore]:
    return type("Store", (IncrementalMemoryStore,), {f"_{kind}": table})


@pytest.mark.parametrize(
    "store",
    [
        with_increments(BuildsOnWhatFailed),
        with_increments(ForgetsThatItWasResumed),
        with_table("rows", ForgetsTheDeleted),
        with_table("panes", KeepsDroppedPanes),
        with_table("aggregates", KnowsOnlyNewRows),
    ],
    ids=["unconfirmed", "resumed", "deleted", "dropped", "changed"],
)
def test_increments_that_do_not_add_up_are_found(store: Any) -> None:
    with pytest.raises((AssertionError, KeyError)):
        increments_add_up_whatever_completes_and_whenever_that_is_heard(Broken(store, incremental=True))


def test_increments_on_what_a_repeated_confirm_was_not_about_are_found() -> None:
    with pytest.raises(AssertionError, match="when confirm was told of others: aggregates"):
        unknown_and_repeated_fates_change_nothing(
            Broken(with_increments(TakesTheLastFreezeForConfirmed), incremental=True)
        )


def test_the_keys_of_a_row_may_stand_in_any_order_among_its_columns_but_must_stay_the_keys() -> None:
    schema = pa.schema([pa.field("b", pa.int64()), pa.field("v", pa.int64()), pa.field("a", pa.int64())])
    rows = pa.RecordBatch.from_pylist([{"a": i, "b": i * i, "v": 7} for i in range(20)], schema)
    store = MemoryStore("uid", KeyGroupRange(0, 127), 128)
    store.buckets("rows", schema, ["a", "b"], "start").add(5, rows)
    [frozen] = store.freeze()
    batches = list(frozen.batches())
    again = MemoryStore("uid", KeyGroupRange(0, 127), 128)
    table = again.buckets("rows", schema, ["a", "b"], "start")
    again.restore("rows", batches)
    assert pa.Table.from_batches([*table.read([5])]).to_pylist() == rows.to_pylist()
    for others in (["b", "a"], ["a"], ["v"]):
        other = MemoryStore("uid", KeyGroupRange(0, 127), 128)
        other.buckets("rows", schema, others, "start")
        with pytest.raises(cw.RestoreError, match=f"keys it by {', '.join(others)}.*key_by as it was"):
            other.restore("rows", batches)


def test_a_class_is_no_setting() -> None:
    with pytest.raises(cw.ConfigError, match=r"is the class, not a setting: write cw\.Memory\(\)"):
        check_state_backend(cw.Memory)  # type: ignore[arg-type]
