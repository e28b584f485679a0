"""One pipeline with every kind of state gives the same on both backends, whatever fails and however wide it runs."""

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cutwater as cw
from cutwater.operators.keyed_process import KeyedProcessOperator
from cutwater.state.rocksdb_family import Family
from cutwater.testing import ADVANCE, CHECKPOINT, FAIL, run, script

SCHEMA = "k string, ts long, v long"


class Everything(cw.KeyedProcess):
    last = cw.ValueState("long")
    seen = cw.ListState("long", ttl="1h")
    by_sign = cw.MapState("string", "long")

    def process(self, row: Any, ctx: Any) -> Any:
        self.last.value = row.v
        self.seen.append(row.v)
        sign = "-" if row.v < 0 else "+"
        self.by_sign[sign] = self.by_sign.get(sign, 0) + 1
        ctx.timers.event_time(row.ts + 20)
        yield ctx.key, row.ts, sum(self.seen), len(self.by_sign.items())

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.key, timestamp, self.last.value, len(self.seen)


class Values(cw.WindowProcess):
    def process(self, rows: Any, ctx: Any) -> Any:
        yield ctx.key, sum(row.v for row in rows), len(rows)


def pipeline(env: cw.Environment) -> None:
    left, right = (
        env.read(cw.from_rows([], SCHEMA), uid=uid).with_timestamps("ts", out_of_orderness="60ms").key_by("k")
        for uid in ("left", "right")
    )
    left.process(Everything, "k string, at long, a long, b long").uid("process").collect("process")
    left.window(cw.tumbling("10ms")).agg(n=cw.count(), hi=cw.max("v"), one=cw.min("v")).uid("panes").collect("panes")
    left.window(cw.sliding("10ms", "5ms")).process(Values, "k string, total long, n long").uid("rows").collect("rows")
    left.window(cw.session("5ms")).agg(n=cw.count(), total=cw.sum("v")).uid("sessions").collect("sessions")
    left.join(right).uid("all").collect("all")
    left.join(right, within="7ms").uid("near").collect("near")


def totals(env: cw.Environment) -> None:
    keyed = env.read(cw.from_rows([], SCHEMA), uid="left").key_by("k")
    keyed.agg(n=cw.count(), total=cw.sum("v"), mean=cw.mean("v")).uid("totals").collect("totals")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(-30, 30), st.integers(-5, 5)),
        st.sampled_from([CHECKPOINT, FAIL]),
    ),
    max_size=16,
)


@settings(max_examples=4)
@given(left=STEPS, right=STEPS, parallelism=st.integers(1, 2), cache=st.sampled_from([1, 4000]))
def test_every_kind_of_state_gives_the_same_on_both_backends(
    left: list[Any], right: list[Any], parallelism: int, cache: int
) -> None:
    on_memory, on_rocksdb = (
        run(
            pipeline,
            {"left": script(*left), "right": script(*right)},
            parallelism=parallelism,
            state_backend=backend,
            choose=random.Random(7).randrange,
        )
        for backend in (cw.Memory(), cw.RocksDB(cache=cache))
    )
    assert {name: sorted(map(repr, rows)) for name, rows in on_rocksdb.items()} == {
        name: sorted(map(repr, rows)) for name, rows in on_memory.items()
    }


def test_running_totals_go_on_after_a_failure() -> None:
    rows = [("a", 0, 1), ("b", 0, 2), ("a", 0, 3)]
    steps = script(rows, CHECKPOINT, rows, FAIL, ("c", 0, 5))
    got = run(totals, {"left": steps}, state_backend=cw.RocksDB(cache=1))["totals"]
    last = {row.k: (row.n, row.total) for row in got}
    assert last == {"a": (4, 8), "b": (2, 4), "c": (1, 5)}


class Reads(cw.KeyedProcess):
    """Of its states one is read and written for every row, one is read and never there, one is read by some batches only."""

    counted = cw.ValueState("long")
    missing = cw.ValueState("long")
    seldom = cw.ListState("long")

    def process(self, row: Any, ctx: Any) -> Any:
        self.counted.value = (self.counted.value or 0) + 1
        assert self.missing.value is None
        if row.v:
            yield row.k, self.counted.value + len(self.seldom)
            if row.v == 2:
                self.seldom.append(row.v)


def test_state_is_read_once_for_each_key_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stays in a cache of one byte, so that every batch begins by reading."""
    most: list[int] = []
    rows_of_batches: list[int] = []
    read: Counter[tuple[int, bytes]] = Counter()
    get, process = Family.get, KeyedProcessOperator.process

    def counting(self: Family, keys: list[bytes]) -> Any:
        read.update((id(self), key) for key in keys)
        return get(self, keys)

    def batch_by_batch(self: KeyedProcessOperator, batch: pa.RecordBatch, port: int, out: Any) -> None:
        read.clear()
        process(self, batch, port, out)
        most.append(max(read.values(), default=0))
        rows_of_batches.append(batch.num_rows)

    monkeypatch.setattr(Family, "get", counting)
    monkeypatch.setattr(KeyedProcessOperator, "process", batch_by_batch)

    def pipeline(env: cw.Environment) -> None:
        keyed = env.read(cw.from_rows([], SCHEMA), uid="left").key_by("k")
        keyed.process(Reads(), "k string, n long").uid("reads").collect("out")

    def rows(v: int) -> list[Any]:
        return [(key, 0, v) for _ in range(20) for key in "abcde"]

    steps = script(
        rows(2), CHECKPOINT, FAIL, rows(0), ADVANCE("1s"), rows(0), ADVANCE("1s"), rows(1), ADVANCE("1s"), rows(2)
    )
    got = run(pipeline, {"left": steps}, state_backend=cw.RocksDB(cache=1))["out"]
    assert max(row.n for row in got) == 100 + 39
    assert max(rows_of_batches) >= 50, "a batch has a key many times"
    assert set(most[-4:]) == {1}, "and reads it once"


def test_a_backend_beside_an_environment_is_refused() -> None:
    with pytest.raises(cw.ConfigError, match="environment and state_backend"):
        run(totals, {}, environment=cw.Environment(checkpointing=None), state_backend=cw.Memory())


class Default(cw.KeyedProcess):
    """RocksDB has a column family of that name already."""

    default = cw.ValueState("long")

    def process(self, row: Any, ctx: Any) -> Any:
        self.default.value = (self.default.value or 0) + 1
        yield row.k, self.default.value


@pytest.mark.parametrize("backend", [cw.RocksDB(), cw.RocksDB(incremental=True)], ids=["full", "incremental"])
def test_a_state_that_is_called_default_comes_back(backend: cw.RocksDB) -> None:
    def pipeline(env: cw.Environment) -> None:
        keyed = env.read(cw.from_rows([], "k string"), uid="in").key_by("k")
        keyed.process(Default(), "k string, n long").uid("counted").collect("out")

    env = cw.Environment(state_backend=backend, checkpointing=cw.Checkpointing("1 day", storage="memory"))
    steps = script([("a",), ("b",)], CHECKPOINT, FAIL, [("a",)], CHECKPOINT, FAIL, [("a",), ("b",)])
    assert sorted(tuple(row) for row in run(pipeline, {"in": steps}, environment=env)["out"]) == [
        ("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2),
    ]  # fmt: skip
