"""Windows that are kept by key, in snapshots that other subtasks restore."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.errors import RestoreError
from cutwater.flow.hashing import hash_columns, key_groups
from cutwater.flow.key_groups import KeyGroupRange, key_group_range
from cutwater.operators.operator import Operator, OperatorContext
from cutwater.rows import batch_of
from cutwater.state.memory import Memory
from tests.unit.operators.collecting import Collected, NoDriver, after

SCHEMA = "k string, ts long, v long"


class Total(cw.AggregateFunction):
    accumulator_type = "array<long>"
    result_type = "long"

    def create(self) -> Any:
        return []

    def add(self, accumulator: Any, row: Any) -> Any:
        return [*accumulator, row.v]

    def merge(self, a: Any, b: Any) -> Any:
        return [*a, *b]

    def result(self, accumulator: Any) -> Any:
        return sum(accumulator)


TOLD_BY: dict[str, Any] = {
    "own": lambda w: w.agg(v=Total()),
    "expressions": lambda w: w.agg(v=cw.sum("v"), n=cw.count_distinct("ts")),
    "reduce": lambda w: w.reduce(lambda a, b: (a.k, a.ts, a.v + b.v)),
}


class Restored:
    def __init__(self, tables: dict[str, list[pa.RecordBatch]], inline: Sequence[Any]) -> None:
        self._tables = tables
        self.inline = inline

    def tables(self) -> Sequence[str]:
        return list(self._tables)

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        return iter(self._tables[table])


def opened(how: str, windows: Any, subtask: int, parallelism: int, restored: Restored | None = None) -> Operator:
    env = cw.Environment(checkpointing=None)
    keyed = env.read(cw.from_rows([], SCHEMA), uid="in").with_timestamps("ts").key_by("k")
    operator = TOLD_BY[how](keyed.window(windows, allowed_lateness="10ms"))._inputs[0].draft.body
    operator.open(
        OperatorContext(
            job="job", uid="w", name="window", subtask=subtask, parallelism=parallelism, max_parallelism=128, attempt=1,
            incarnation="i", key_groups=key_group_range(subtask, parallelism, 128), backend=Memory(), now=lambda: 0,
            driver=NoDriver(), restored=restored,
        )
    )  # fmt: skip
    assert isinstance(operator, Operator)
    return operator


def told(out: Collected) -> list[tuple[Any, ...]]:
    return [(row["k"], row["window_start"], row["v"]) for batch in out.batches for row in batch.to_pylist()]


@pytest.mark.parametrize("how", TOLD_BY)
@pytest.mark.parametrize("windows", [cw.tumbling("10ms"), cw.sliding("12ms", "4ms"), cw.session("3ms")])
def test_a_snapshot_goes_on_at_another_parallelism_as_if_nothing_had_happened(how: str, windows: Any) -> None:
    schema = pa.schema([("k", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
    keys = [*(f"k{n}" for n in range(40)), None]
    first = batch_of([(key, ts, 1) for key in keys for ts in (1, 5, 14)], schema, "test")
    second = batch_of([(key, ts, 10) for key in keys for ts in (13, 7, 30)], schema, "test")
    whole, expected = opened(how, windows, 0, 1), Collected()
    whole.process(first, 0, expected)
    after(whole.on_watermark(11, expected))
    cut = whole.snapshot(1)  # type: ignore[arg-type]
    assert cut is not None
    frozen = {table.name: list(table.batches()) for table in cut.tables}
    expected.batches.clear()
    whole.process(second, 0, expected)
    after(whole.on_watermark(100, expected))
    got, rows = [], 0
    for subtask in range(3):
        restored = Restored(frozen, [cut.inline])
        part, out = opened(how, windows, subtask, 3, restored), Collected()
        kept = part.snapshot(2)  # type: ignore[arg-type]
        assert kept is not None
        rows += sum(batch.num_rows for table in kept.tables for batch in table.batches())
        part.process(_of_groups(second, key_group_range(subtask, 3, 128)), 0, out)
        after(part.on_watermark(100, out))
        got += told(out)
    assert rows == sum(batch.num_rows for batches in frozen.values() for batch in batches)
    assert sorted(got, key=str) == sorted(told(expected), key=str)


def test_what_was_stored_as_one_value_for_all_windows_of_a_key_is_refused() -> None:
    total = pa.struct([("v", pa.list_(pa.int64()))])
    schema = pa.schema([("k", pa.string()), ("windows", pa.map_(pa.int64(), total)), ("key_group", pa.int32())])
    rows = [{"k": "a", "windows": [(0, {"v": [1]})], "key_group": 3}]
    stored = Restored({"windows": [pa.RecordBatch.from_pylist(rows, schema)]}, [])
    with pytest.raises(RestoreError, match=r"'windows', column 'window_start': .* the checkpoint holds nothing"):
        opened("own", cw.tumbling("10ms"), 0, 1, stored)


def _of_groups(batch: pa.RecordBatch, own: KeyGroupRange) -> pa.RecordBatch:
    groups = key_groups(hash_columns(batch, ("k",)), 128)
    return batch.filter(pa.array((groups >= own.first) & (groups <= own.last)))
