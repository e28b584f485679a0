"""Panes of the Memory backend: merged by key, whether few rows or many, before and after a restore, under a snapshot."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.flow.hashing import hash_columns, key_groups
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state import memory_panes
from cutwater.state.memory import Memory, MemoryStore
from cutwater.state.tables import Column, Merge, PaneTable

KEYS = pa.schema([("k", pa.string())])
COLUMNS = [(Column("n", pa.int64(), nullable=False), Merge.ADD), (Column("hi", pa.int64()), Merge.MAX)]
SCHEMA = pa.schema([*KEYS, *(column.field for column, _ in COLUMNS)])
ROWS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", None]), st.integers(0, 9)), max_size=20)


def store(groups: tuple[int, int] = (0, 127)) -> MemoryStore:
    return Memory().open("w1", KeyGroupRange(*groups), 128)


def table_of(kept: MemoryStore) -> PaneTable:
    return kept.panes("windows", KEYS, "window_start", COLUMNS)


def partial(*rows: tuple[str | None, int, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def content(table: PaneTable, *panes: int) -> dict[Any, tuple[int, int]]:
    rows = [row for batch in table.read(panes) for row in batch.to_pylist()]
    found = {row["k"]: (row["n"], row["hi"]) for row in rows}
    assert len(found) == len(rows), "one row for each key"
    return found


@pytest.fixture(params=[0, 3, 4096])
def _promoted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """From how many rows on a pane has an index."""
    monkeypatch.setattr(memory_panes, "PROMOTED_ROWS", request.param)
    monkeypatch.setattr(memory_panes, "MOST_BATCHES", 3)


def merged(rows: Iterable[tuple[int, str | None, int]], *panes: int) -> dict[Any, tuple[int, int]]:
    result: dict[Any, tuple[int, int]] = {}
    for pane, key, value in rows:
        if pane in panes:
            n, hi = result.get(key, (0, 0))
            result[key] = (n + 1, max(hi, value))
    return result


@pytest.mark.usefixtures("_promoted")
@given(ROWS, ROWS)
def test_rows_are_merged_by_key_over_any_panes_also_after_a_restore_and_under_a_snapshot(
    before: list[tuple[int, str | None, int]], later: list[tuple[int, str | None, int]]
) -> None:
    first = store()
    table = table_of(first)
    for pane, key, value in before:
        table.merge(pane, partial((key, 1, value)))
    (frozen,) = first.freeze()
    for pane, key, value in later:
        table.merge(pane, partial((key, 1, value)))
    for panes in [(0,), (1,), (0, 1, 2), (7,)]:
        assert content(table, *panes) == merged([*before, *later], *panes)
    stored = list(frozen.batches())
    frozen.release()
    second = store()
    second.restore("windows", stored)
    again = table_of(second)
    assert set(again.panes()) == {pane for pane, _, _ in before}
    for panes in [(0,), (1,), (0, 1, 2)]:
        assert content(again, *panes) == merged(before, *panes)


@pytest.mark.usefixtures("_promoted")
def test_a_restore_takes_the_key_groups_of_its_own_range() -> None:
    first = store()
    table = table_of(first)
    keys = [f"key{n}" for n in range(50)]
    table.merge(5, partial(*((key, 1, 1) for key in keys)))
    (frozen,) = first.freeze()
    stored = list(frozen.batches())
    found: list[str] = []
    for groups in ((0, 63), (64, 127)):
        part = store(groups)
        part.restore("windows", stored)
        own = content(table_of(part), 5)
        found += own
        of = key_groups(hash_columns(partial(*((key, 1, 1) for key in own)), ["k"]), 128)
        assert all(groups[0] <= group <= groups[1] for group in of)
    assert sorted(found) == sorted(keys)


def test_a_dropped_pane_is_gone_but_not_from_a_snapshot_that_has_it() -> None:
    kept = store()
    table = table_of(kept)
    table.merge(5, partial(("a", 1, 1)))
    (frozen,) = kept.freeze()
    table.drop(5)
    table.drop(6)
    assert list(table.panes()) == [] and content(table, 5) == {}
    assert sum(batch.num_rows for batch in frozen.batches()) == 1
