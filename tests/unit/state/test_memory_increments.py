"""What the Memory backend stores when it stores what changed: no more than that, and for how long."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.layout import JobLayout
from cutwater.checkpoint.table_writer import TableWriter
from cutwater.errors import StorageError
from cutwater.flow.ids import Attempt, SubtaskId
from cutwater.state import memory_panes, parted_dict, tracked_rows
from cutwater.state.expiry import with_expiry, without_expired
from cutwater.state.memory_increments import MOST_CHANGES, can_grow
from cutwater.state.parted_dict import MOST_IN_ONE
from cutwater.state.stored import Form, StoredFile, StoredTable
from cutwater.state.tables import Column, JoinSide, Merge, Update
from cutwater.testing.increment_contract import increments_add_up_whatever_completes_and_whenever_that_is_heard
from tests.increments import Job, ManyKeys, opened

KEYS = pa.schema([("k", pa.int64())])
COUNT = (Column("n", pa.int64(), nullable=False),)


def count(table: Any, keys: Any) -> None:
    batch = pa.record_batch([pa.array(keys, pa.int64())], schema=KEYS)
    table.update(table.locate(batch), [Update(0, Merge.COUNT)])


def test_an_increment_of_aggregates_has_the_rows_that_changed_and_no_others() -> None:
    job = Job(opened())
    table = job.store.aggregates("n", KEYS, COUNT)
    count(table, np.arange(20_000))
    count(table, [None])
    assert job.checkpoint().rows == 20_001
    count(table, [5, 5, 19_999, 20_001, None])
    second = job.checkpoint()
    assert (len(second.files), second.rows - 20_001) == (2, 4)
    wanted = {**dict.fromkeys(range(20_000), 1), None: 2, 5: 3, 19_999: 2, 20_001: 1}
    assert job.rows(second) == wanted


def test_changes_of_a_checkpoint_that_failed_are_in_the_next_one() -> None:
    job = Job(opened())
    table = job.store.aggregates("n", KEYS, COUNT)
    count(table, range(5000))
    job.checkpoint()
    count(table, [1])
    failed = job.checkpoint(completes=False)
    count(table, [2])
    third = job.checkpoint()
    assert third.files[:-1] == failed.files[:-1]
    assert third.rows - 5000 == 2
    assert job.rows(third) == {**dict.fromkeys(range(5000), 1), 1: 2, 2: 2}


def test_keys_that_were_only_asked_for_are_stored_too() -> None:
    job = Job(opened())
    table = job.store.aggregates("n", KEYS, (Column("text", pa.string()),))
    table.update(table.locate(pa.record_batch([pa.array([1])], schema=KEYS)), [Update(0, Merge.LAST, pa.array(["a"]))])
    job.checkpoint()
    table.update(table.locate(pa.record_batch([pa.array([1])], schema=KEYS)), [Update(0, Merge.LAST, pa.array(["b"]))])
    table.locate(pa.record_batch([pa.array([2])], schema=KEYS))
    assert job.rows(job.checkpoint(), ("k", "text")) == {1: "b", 2: None}


@pytest.mark.parametrize("promoted", [0, 3])
def test_panes_that_are_kept_as_tables_add_up_like_those_kept_as_rows(
    promoted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_panes, "PROMOTED_ROWS", promoted)
    increments_add_up_whatever_completes_and_whenever_that_is_heard(cw.Memory(incremental=True))


@pytest.mark.parametrize("most", [MOST_IN_ONE, 150, 20])
def test_rows_are_merged_in_steps_and_stay_known_as_changed(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parted_dict, "MOST_IN_ONE", most)
    monkeypatch.setattr(tracked_rows, "MERGE_STEP", 3)
    job = Job(opened())
    table = job.store.rows("n", KEYS, pa.int64())
    model: dict[int, int] = {}
    for key in range(200):
        model[key] = key
        table.put(key, key)
    job.checkpoint()
    for step in range(30):
        for key in range(step, 200, 7 + step):
            if (key + step) % 5:
                model[key] = step
                table.put(key, step)
            else:
                model.pop(key, None)
                table.delete(key)
            job.store.tend()
        stored = job.checkpoint(completes=step % 3 != 1)
        assert job.rows(stored) == model
        assert dict(table.items()) == model


@pytest.mark.parametrize(
    ("gone", "put"), [(3, 0), (3, 5), (8, 5)], ids=["nothing behind", "live rows behind", "more deletes"]
)
def test_a_base_that_runs_empty_while_a_layer_is_merged_into_it_takes_the_rest_of_that_layer(
    gone: int, put: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracked_rows, "MERGE_STEP", gone)
    job = Job(opened())
    table = job.store.rows("n", KEYS, pa.int64())
    for key in range(gone):
        table.put(key, 0)
    job.checkpoint()
    job.store.tend()
    for key in range(gone):
        table.delete(key)
    model = dict.fromkeys(range(100, 100 + put), 0)
    for key in model:
        table.put(key, 0)
    job.checkpoint()
    job.store.tend()
    assert not table._base, "all that was merged so far are deletes"
    job.store.tend()
    for key in (100, 200):
        model[key] = 1
        table.put(key, 1)
    stored = job.checkpoint()
    for _ in range(20):
        job.store.tend()
        assert dict(table.items()) == model
    assert len(table._below) == 1
    assert job.rows(stored) == model


def test_what_came_and_went_between_two_checkpoints_is_in_none() -> None:
    """As windows do, of which a row is kept for each key."""
    job = Job(opened())
    table = job.store.rows("n", KEYS, pa.int64())
    for key in range(100):
        table.put(key, 0)
    job.checkpoint()
    for key in range(1000, 2000):
        table.put(key, 0)
        table.delete(key)
    table.delete(5)
    assert len(table._top) == 1
    second = job.checkpoint()
    assert second.rows - 100 == 1
    assert job.rows(second) == {key: 0 for key in range(100) if key != 5}


def test_what_many_rows_were_is_let_go_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracked_rows, "MERGE_STEP", 5)
    job = Job(opened())
    table = job.store.rows("n", KEYS, pa.int64())
    for key in range(300):
        table.put(key, 0)
    table.delete(7)
    assert 7 not in table._top, "nothing is stored of it"
    first = table._top
    job.checkpoint()
    job.store.tend()
    assert table._base is first, "the first layer is the base: nothing is copied"
    for key in range(200):
        table.put(key, 1)
    second = table._top
    job.checkpoint()
    sizes = [len(second)]
    for _ in range(200):
        job.store.tend()
        sizes.append(len(second))
    assert max(before - after for before, after in pairwise(sizes)) <= 5 + 200 // 16
    assert (sizes[-1], table._unneeded, table._below) == (0, [], (first,))
    wanted = {key: int(key < 200) for key in range(300)}
    assert dict(table.items()) == wanted
    assert job.rows(job.checkpoint()) == wanted


def test_changes_of_rows_are_not_kept_for_ever_when_no_checkpoint_completes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracked_rows, "KEPT_CHANGES", 100)
    job = Job(opened())
    table = job.store.rows("n", KEYS, pa.int64())
    for key in range(1000):
        table.put(key, 0)
    job.checkpoint()
    for step in range(1, 30):
        for key in range(100):
            table.put(key, step)
        stored = job.checkpoint(completes=False)
        for _ in range(100):
            job.store.tend()
        assert sum(len(layer) for _, layer in table._changed) <= 100 + 500 + 100
    assert len(stored.files) == 1
    assert job.rows(stored) == {**dict.fromkeys(range(1000), 0), **dict.fromkeys(range(100), 29)}


def test_a_chain_is_short_and_no_longer_than_half_its_base() -> None:
    def chain(base: int, *changes: int) -> StoredTable:
        files = tuple(StoredFile(str(i), size, "", shared=True) for i, size in enumerate((base, *changes)))
        return StoredTable("n", files, 1, 0, 1, Form.CHANGES)

    assert can_grow(chain(10**6))
    assert can_grow(chain(10**6, *[1000] * (MOST_CHANGES - 1)))
    assert not can_grow(chain(10**6, *[1000] * MOST_CHANGES))
    assert not can_grow(chain(10**6, 400_000, 100_001))
    assert can_grow(chain(100, 1000, 1000))
    assert not can_grow(StoredTable("n", chain(10**6).files, 1, 0, 1, Form.ROWS))


def test_every_so_often_all_is_stored_again() -> None:
    job = Job(opened())
    table = job.store.aggregates("n", KEYS, COUNT)
    count(table, range(10_000))
    lengths = []
    for key in range(2 * (MOST_CHANGES + 1)):
        lengths.append(len(job.checkpoint().files))
        count(table, [key])
    assert lengths == [*range(1, MOST_CHANGES + 2)] * 2


@pytest.mark.parametrize("kind", ["buckets", "join"])
def test_an_increment_of_appended_rows_has_those_that_came_since(kind: str) -> None:
    job = Job(opened())
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64())])
    if kind == "buckets":
        table = job.store.buckets("n", schema, ["k"], "at")
        add = table.add
    else:
        table = job.store.join(
            "n", JoinSide(schema, ("k",)), JoinSide(pa.schema([("key", pa.int64())]), ("key",)), "at"
        )
        job.store._tables.pop("n.right")
        add = lambda bucket, rows: table.add(0, bucket, rows)  # noqa: E731

    def rows(*keys: int) -> pa.RecordBatch:
        return pa.record_batch([pa.array(keys, pa.int64()), pa.array(keys, pa.int64())], schema=schema)

    add(10, rows(*range(1000)))
    add(20, rows(5000))
    assert job.checkpoint().rows == 1001
    add(10, rows(1000, 1001))
    table.drop(20)
    add(30, rows(6000))
    second = job.checkpoint()
    assert second.rows - 1001 == 3
    assert list(job.rows(second)) == [*range(1002), 6000]
    table.drop(10)
    add(10, rows(7000))
    assert list(job.rows(job.checkpoint())) == [6000, 7000]
    table.drop(10)
    table.drop(30)
    assert job.rows(job.checkpoint()) == {}


def test_a_million_keys_of_100_bytes_of_which_1_percent_changed_store_less_than_5_percent(tmp_path: Path) -> None:
    """In how much less time, the soak tells: all of it takes a tenth of a second here, too little for a bound."""
    job = Job(opened(), FileStorage(str(tmp_path)))
    many = ManyKeys(job.store)
    many.write(np.arange(1_000_000))
    full = job.checkpoint()
    many.write(np.random.default_rng(1).choice(1_000_000, 10_000, replace=False))
    increment = job.checkpoint()
    assert increment.files[0] == full.files[0]
    base, changes = (file.size for file in increment.files)
    assert base > 90 * 1_000_000
    assert changes < 0.05 * base
    assert increment.rows - full.rows == 10_000
    store = opened()
    again = ManyKeys(store)
    store.restore("n", job.restored(increment).batches("n"))
    assert len(again.table) == 1_000_000
    assert np.bincount(again.counts(np.arange(1_000_000))).tolist() == [0, 990_000, 10_000]


def test_what_expired_is_not_in_an_increment_and_hides_what_was_stored_of_it_before() -> None:
    """Also if the clock went back in between, so that the older value would still be alive."""
    job = Job(opened())
    table = job.store.rows("seen", KEYS, pa.list_(with_expiry(pa.string())))

    def entry(text: str, expires_at: int) -> dict[str, Any]:
        return {"value": text, "expires_at": expires_at}

    def at(now: int) -> dict[Any, Any]:
        stored = job.checkpoint(seen_through=lambda frozen: without_expired(frozen, now))
        rows = job.rows(stored, ("k", "seen"))
        return {key: [each["value"] for each in values] for key, values in rows.items()}

    table.put(1, [entry("a", 1000), entry("b", 2000)])
    table.put(2, [entry("long", 9000)])
    table.put(3, [entry("kept", 9000)])
    assert at(500) == {1: ["a", "b"], 2: ["long"], 3: ["kept"]}
    table.put(1, [entry("a", 1000), entry("b", 2000), entry("c", 3000)])
    table.put(2, [entry("short", 1500)])
    assert at(1200) == {1: ["b", "c"], 2: ["short"], 3: ["kept"]}
    table.put(2, [entry("shorter", 1300)])
    table.delete(1)
    assert at(1400) == {3: ["kept"]}


def test_what_fits_into_memory_storage_as_a_whole_is_stored_whatever_its_changes_would_take() -> None:
    """All files of a state count against the limit: where a base and its changes would not fit, everything is stored anew."""
    limit = 200_000
    job = Job(opened())
    job.writer = TableWriter(job.storage, JobLayout("job").files_of(SubtaskId("v", 0), Attempt(1)), limit=limit)
    table = job.store.aggregates("n", KEYS, COUNT)
    count(table, np.arange(12_000))
    sizes, lengths = [], set()
    for start in range(0, 12_000, 1000):
        count(table, np.arange(start, start + 1000))
        stored = job.checkpoint()
        sizes.append(stored.size)
        lengths.add(len(stored.files))
    assert max(sizes) <= limit
    assert lengths >= {1, 2}, "changes are stored while there is room for them"
    assert job.rows(stored) == dict.fromkeys(range(12_000), 2)


def test_what_does_not_fit_as_a_whole_is_declined() -> None:
    job = Job(opened())
    job.writer = TableWriter(job.storage, JobLayout("job").files_of(SubtaskId("v", 0), Attempt(1)), limit=50_000)
    count(job.store.aggregates("n", KEYS, COUNT), np.arange(50_000))
    with pytest.raises(StorageError, match="State 'n' is larger than 50000 bytes"):
        job.checkpoint()
