"""The same pipeline leaves the same in a checkpoint, whichever backend kept it: read back through one reader, it is equal."""

import sys
from collections import Counter
from functools import cache, partial
from typing import Any

import pytest

import cutwater as cw
from cutwater.checkpoint.completed import CompletedCheckpoint
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.stored_tables import RestoredTables
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.testing import ADVANCE, CHECKPOINT, FAIL, run, script
from tests.rich_pipeline import BACKENDS, pipeline

COUNT = 90
NUMBERS = list(range(COUNT))
ORDERS = script(
    NUMBERS[:40], CHECKPOINT, ADVANCE("70ms"), NUMBERS[40:60], CHECKPOINT, FAIL, CHECKPOINT, NUMBERS[60:80], CHECKPOINT,
    NUMBERS[80:],
)  # fmt: skip
TAKEN, RESTORED = 1, 2
"""Two checkpoints with a failure between them, and no record."""
SOURCES = frozenset({"orders", "payments", "rules"})
KEYED = frozenset(
    {
        "ledger", "tumbling", "sliding", "slides", "session", "spreads", "all_pairs", "near_pairs", "window_pairs",
    }
)  # fmt: skip

Content = dict[tuple[str, ...], Any]


def content(store: JobStore, checkpoint: CompletedCheckpoint) -> Content:
    """What a restore would be given of each operator of each subtask: the rows of each table, in any order, and what stands in
    the metadata. One script feeds one subtask of a source, so that nothing here is left to chance at any parallelism."""
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


def taken(backend: str, parallelism: int) -> list[Content]:
    """Of the checkpoints that the script asks for."""
    stores: list[JobStore] = []

    class Kept(JobStore):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            stores.append(self)

    env = cw.Environment(
        parallelism=parallelism,
        checkpointing=cw.Checkpointing("3650 days", storage=cw.memory_storage("1GB"), retain=10),
        state_backend=BACKENDS[backend],
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["cutwater.testing.run"], "JobStore", Kept)
        run(partial(pipeline, count=COUNT), {"orders": ORDERS, "payments": NUMBERS}, environment=env)
    [store] = stores
    completed = sorted(store.completed(), key=lambda checkpoint: checkpoint.id)
    return [content(store, checkpoint) for checkpoint in completed[: ORDERS.items.count(CHECKPOINT)]]


contents = cache(taken)
"""Several tests look at the same ones."""


def different(one: Content, other: Content) -> set[tuple[str, ...]]:
    return {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}


def gathered(of_subtasks: Content) -> dict[tuple[str, str], Counter[str]]:
    """The rows that each table of an operator has in all of its subtasks together."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for (_, uid, *table), rows in of_subtasks.items():
        if table and uid in KEYED:
            found.setdefault((uid, table[0]), Counter()).update(rows)
    return found


def changed_by_a_restore(stored: list[Content]) -> set[tuple[str, ...]]:
    """Positions in the script are not looked at: they count its marks."""
    return {key for key in different(stored[TAKEN], stored[RESTORED]) if key[1] not in SOURCES}


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_stores_the_same_and_again_what_was_restored(backend: str, parallelism: int) -> None:
    """Rule 39. Both are asked of what is made once, as that takes its time."""
    expected, found = contents("memory", parallelism), contents(backend, parallelism)
    with_rows = {key[:2] for key, rows in expected[-1].items() if len(key) == 3 and rows}
    spread = Counter(uid for _, uid in with_rows)
    assert all(spread[uid] == parallelism for uid in KEYED), spread
    assert [different(*each) for each in zip(found, expected, strict=True)] == [set()] * 4
    assert changed_by_a_restore(found) == set()


def test_the_subtasks_together_store_what_one_alone_does() -> None:
    alone, together = (contents("memory", parallelism) for parallelism in (1, 3))
    assert [gathered(each) for each in together] == [gathered(each) for each in alone]
