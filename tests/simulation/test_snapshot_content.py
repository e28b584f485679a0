"""The same pipeline leaves the same in a checkpoint, whichever backend kept it: read back through one reader, it is equal."""

import sys
from collections import Counter
from functools import partial
from typing import Any

import pytest

import cutwater as cw
from cutwater.checkpoint.completed import CompletedCheckpoint
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.stored_tables import RestoredTables
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.testing import ADVANCE, CHECKPOINT, FAIL, run, script
from tests.rich_pipeline import BACKENDS, pipeline

COUNT = 160
MARKS = (60, 90, 120)
"""Behind so many orders a checkpoint is taken."""

Content = dict[tuple[str, ...], Any]


def content(store: JobStore, checkpoint: CompletedCheckpoint) -> Content:
    """What a restore would be given of each operator: the rows of each table, in any order, and what stands in the metadata."""
    found: Content = {}
    all_groups = KeyGroupRange(0, checkpoint.max_parallelism - 1)
    for record in checkpoint.subtasks:
        subtask = f"{record.snapshot.vertex}[{record.snapshot.index}]"
        for operator in record.snapshot.operators:
            if operator.uid.startswith("collect-"):
                continue  # what was written, in the order in which it came out
            found[subtask, operator.uid] = operator.inline
            restored = RestoredTables((), operator.tables, all_groups, storage=store.storage, whole=True)
            for table in restored.tables():
                rows = [repr(row) for batch in restored.batches(table) for row in batch.to_pylist()]
                found[subtask, operator.uid, table] = Counter(rows)
    return found


def contents(backend: cw.StateBackend, monkeypatch: pytest.MonkeyPatch) -> dict[int, Content]:
    """Of the checkpoints that the script asks for."""
    stores: list[JobStore] = []

    class Kept(JobStore):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            stores.append(self)

    monkeypatch.setattr(sys.modules["cutwater.testing.run"], "JobStore", Kept)
    numbers = list(range(COUNT))
    first, second, third = MARKS
    orders = script(
        numbers[:first], CHECKPOINT, numbers[first:second], CHECKPOINT, ADVANCE("70ms"), FAIL,
        numbers[second:third], CHECKPOINT, numbers[third:],
    )  # fmt: skip
    checkpointing = cw.Checkpointing("3650 days", storage=cw.memory_storage("1GB"), retain=10)
    env = cw.Environment(parallelism=1, checkpointing=checkpointing, state_backend=backend)
    run(partial(pipeline, count=COUNT), {"orders": orders, "payments": numbers}, environment=env)
    [store] = stores
    taken = {checkpoint.id: content(store, checkpoint) for checkpoint in store.completed()}
    return {number: taken[number] for number in sorted(taken)[: len(MARKS)]}


def test_every_backend_stores_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = contents(BACKENDS["memory"], monkeypatch)
    assert len(expected) == len(MARKS)
    stateful = {key[1] for key, rows in expected[3].items() if len(key) == 3 and rows}
    assert {"ledger", "tumbling", "sliding", "session", "all_pairs", "near_pairs", "window_pairs"} <= stateful
    for name, backend in BACKENDS.items():
        if name == "memory":
            continue
        found = contents(backend, monkeypatch)
        for number, content_of_memory in expected.items():
            assert found[number].keys() == content_of_memory.keys(), name
            different = {key for key, held in content_of_memory.items() if found[number][key] != held}
            assert not different, f"{name}, checkpoint {number}"
