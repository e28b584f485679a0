"""A pipeline on a backend that a user wrote: plain dicts behind the public protocol, and nothing of ours below it."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.flow.hashing import hash_arrays, key_groups
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.rows import values_of
from cutwater.testing import ADVANCE, CHECKPOINT, FAIL, run, script


@dataclass(frozen=True)
class Dicts:
    """Keeps what row functions keep. The setting: it is pickled with the job."""

    incremental: bool = False
    asynchronous: bool = True

    def open(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> "DictStore":
        return DictStore(key_groups, max_parallelism)


class DictStore:
    def __init__(self, groups: KeyGroupRange, max_parallelism: int) -> None:
        self._groups = groups
        self._max_parallelism = max_parallelism
        self._tables: dict[str, DictTable] = {}
        self._restored: dict[str, list[pa.RecordBatch]] = {}

    def rows(self, name: str, keys: pa.Schema, value: pa.DataType) -> "DictTable":
        table = self._tables[name] = DictTable(name, keys, value, self._max_parallelism)
        for batch in self._restored.pop(name, []):
            table.put_back(batch, self._groups)
        return table

    def freeze(self, checkpoint: Any = None) -> list[Any]:
        return [table.frozen() for table in self._tables.values()]

    def restore(self, name: str, batches: Iterable[pa.RecordBatch]) -> None:
        if name in self._tables:
            for batch in batches:
                self._tables[name].put_back(batch, self._groups)
        else:
            self._restored.setdefault(name, []).extend(batches)

    def confirm(self, checkpoint: Any) -> None: ...

    def abort(self, checkpoint: Any) -> None: ...

    def resume(self, checkpoint: Any, state: Any) -> Collection[str]:
        return ()

    def adopt(self, state: Any) -> Collection[str]:
        return ()

    def expect(self, keys: Sequence[Any]) -> None: ...

    def tend(self) -> None: ...

    def close(self) -> None: ...


class DictTable:
    def __init__(self, name: str, keys: pa.Schema, value: pa.DataType, max_parallelism: int) -> None:
        self.name = name
        self._schema = pa.schema([*keys, pa.field(name, value), pa.field("key_group", pa.int32(), nullable=False)])
        self._max_parallelism = max_parallelism
        self._values: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        return self._values.get(key)

    def put(self, key: Any, value: Any) -> None:
        self._values[key] = value

    def own(self, key: Any, copy: Any) -> Any:
        if key in self._values:
            self._values[key] = copy(self._values[key])
        return self._values.get(key)

    def delete(self, key: Any) -> None:
        self._values.pop(key, None)

    def items(self) -> Iterator[tuple[Any, Any]]:
        return iter(list(self._values.items()))

    def frozen(self) -> "FrozenDict":
        keys = pa.array(list(self._values), self._schema.field(0).type)
        values = pa.array(list(self._values.values()), self._schema.field(1).type)
        groups = pa.array(key_groups(hash_arrays([keys], len(keys)), self._max_parallelism))
        return FrozenDict(self.name, pa.RecordBatch.from_arrays([keys, values, groups], schema=self._schema))

    def put_back(self, batch: pa.RecordBatch, groups: KeyGroupRange) -> None:
        keys, values, of_keys = batch.columns
        for key, value, group in zip(keys.to_pylist(), values_of(values), of_keys.to_pylist(), strict=True):
            if groups.first <= group <= groups.last:
                self._values[key] = value


@dataclass
class FrozenDict:
    name: str
    batch: pa.RecordBatch

    @property
    def schema(self) -> pa.Schema:
        return self.batch.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield self.batch

    def release(self) -> None: ...


class Told(cw.KeyedProcess):
    """Counts, keeps the last ones, and tells both when a time is over."""

    count = cw.ValueState("long")
    lately = cw.ListState("long")
    passing = cw.ValueState("long", ttl="100ms")

    def process(self, row: Any, ctx: Any) -> Any:
        self.passing.value = row.v
        self.count.value = (self.count.value or 0) + 1
        self.lately.append(row.v)
        ctx.timers.event_time(row.ts + 20)
        yield ctx.key, row.ts, self.count.value, sum(self.lately)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.key, timestamp, self.count.value, sum(self.lately)
        self.lately.clear()


def pipeline(env: cw.Environment) -> None:
    events = env.read(cw.from_rows([], "k string, ts long, v long"), uid="in").with_timestamps("ts")
    events.key_by("k").process(Told(), "k string, at long, n long, lately long").uid("told").collect("out")


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_pipeline_on_a_users_backend_gives_what_it_gives_on_ours(parallelism: int) -> None:
    rows = [("abcdefg"[n % 7], n * 5, n) for n in range(60)]
    steps = script(rows[:20], CHECKPOINT, rows[20:30], FAIL, ADVANCE("1s"), rows[30:45], CHECKPOINT, FAIL, rows[45:])
    on_theirs, on_ours = (
        run(pipeline, {"in": steps}, parallelism=parallelism, state_backend=backend)["out"]
        for backend in (Dicts(), cw.Memory())
    )
    assert sorted(map(tuple, on_theirs)) == sorted(map(tuple, on_ours))
    assert max(row.n for row in on_theirs) == 9, "what was counted before the failures counts"


def test_a_table_that_it_does_not_have_is_asked_for_by_name() -> None:
    def windows(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], "k string, ts long, v long"), uid="in").with_timestamps("ts")
        events.key_by("k").window(cw.tumbling("1s")).agg(n=cw.count()).uid("w").collect("out")

    with pytest.raises(cw.JobFailed, match=r"w\[0\].*has no attribute 'panes'"):
        run(windows, {"in": [("a", 1, 1)]}, state_backend=Dicts())  # type: ignore[arg-type]
