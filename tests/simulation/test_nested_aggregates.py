"""The first and last of values with parts, where windows and keys are kept as values: those that were restored, or read from
RocksDB, stand beside those that came since."""

from typing import Any

import pytest

import cutwater as cw
from cutwater.rows import Row
from cutwater.testing import CHECKPOINT, FAIL, run, script


class Records(cw.AggregateFunction):
    """Has a window's or key's content kept as values."""

    accumulator_type = "long"
    result_type = "long"

    def create(self) -> int:
        return 0

    def add(self, accumulator: int, row: Row) -> int:
        return accumulator + 1

    def merge(self, left: int, right: int) -> int:
        return left + right

    def result(self, accumulator: int) -> int:
        return accumulator


NESTED: dict[str, Any] = {
    "struct<a:long,b:string>": lambda n: (n, f"t{n}"),
    "array<struct<a:long>>": lambda n: [(n,), (n + 1,)],
    "struct<a:struct<b:long>,c:map<string,long>>": lambda n: ((n,), {"m": n}),
}
WINDOWS = {"tumbling": cw.tumbling("10ms"), "sliding": cw.sliding("10ms", "10ms"), "session": cw.session("5ms")}


@pytest.mark.parametrize("backend", [cw.Memory(), cw.RocksDB(cache=1), cw.RocksDB(cache=1, incremental=True)], ids=str)
@pytest.mark.parametrize("value_type", NESTED)
@pytest.mark.parametrize("window", [*WINDOWS, None])
def test_values_with_parts_are_the_same_behind_a_restore(
    window: str | None, value_type: str, backend: cw.StateBackend
) -> None:
    value = NESTED[value_type]

    def pipeline(env: cw.Environment) -> None:
        rows = env.read(cw.from_rows([], f"k string, ts long, v {value_type}"), uid="in").with_timestamps("ts")
        keyed = rows.key_by("k")
        kept = keyed if window is None else keyed.window(WINDOWS[window])
        kept.agg(f=cw.first("v"), l=cw.last("v"), n=Records()).uid("kept").collect("out")

    before = [(key, time, value(time)) for time in (1, 2) for key in "abc"]
    after = [(key, time, value(time)) for time in (3, 4) for key in "bcd"]
    records = script(before, CHECKPOINT, FAIL, after, CHECKPOINT, FAIL, [("z", 30, value(30))])
    found = run(pipeline, {"in": records}, state_backend=backend)["out"]
    in_all = {"a": (2, 1, 2), "b": (4, 1, 4), "c": (4, 1, 4), "d": (2, 3, 4)}
    told = {row.k: (row.n, row.f, row.l) for row in found if row.n == in_all.get(row.k, (0,))[0]}
    assert told == {key: (n, value(first), value(last)) for key, (n, first, last) in in_all.items()}
