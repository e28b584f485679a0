"""Streams that differ only in what may be null are united; the united stream may be null wherever one of them may."""

import random
from typing import Any

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.testing import CHECKPOINT, FAIL, run, script

STRICT = pa.schema(
    [
        pa.field("k", pa.string(), nullable=False),
        pa.field(
            "s",
            pa.struct(
                [
                    pa.field("n", pa.int64(), nullable=False),
                    pa.field("l", pa.list_(pa.field("item", pa.float64(), nullable=False))),
                    pa.field("m", pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))),
                ]
            ),
        ),
        pa.field("x", pa.int32()),
    ]
)
LOOSE = pa.schema(
    {
        "k": pa.string(),
        "s": pa.struct({"n": pa.int64(), "l": pa.list_(pa.float64()), "m": pa.map_(pa.string(), pa.int32())}),
        "x": pa.int32(),
    }
)
STRICT_ELSEWHERE = LOOSE.set(2, pa.field("x", pa.int32(), nullable=False))

FULL = [("a", (1, [0.5], {"q": 1}), None), ("b", (2, [], {}), 3)]
WITH_NULLS = [(None, (None, [None], {"q": None}), None), ("a", None, 4)]
WITHOUT_X_NULL = [(None, (None, None, None), 5), ("a", None, 6)]


class Last(cw.KeyedProcess):
    """The row before, of the same key."""

    before = cw.ValueState(LOOSE.field("s").type)

    def process(self, row: Any, ctx: Any) -> Any:
        yield row.k, self.before.value, row.x
        if row.s is None:
            self.before.clear()
        else:
            self.before.value = row.s


def env_with(*schemas: pa.Schema) -> tuple[cw.Environment, list[cw.Stream]]:
    env = cw.Environment()
    return env, [env.read(cw.from_rows([], schema), uid=f"s{n}") for n, schema in enumerate(schemas)]


def test_the_united_schema_may_be_null_where_either_may() -> None:
    _, (strict, loose, elsewhere) = env_with(STRICT, LOOSE, STRICT_ELSEWHERE)
    assert strict.union(loose).schema == LOOSE
    assert loose.union(strict).schema == LOOSE
    assert strict.union(elsewhere).schema == LOOSE
    assert strict.union(strict).schema == STRICT


@pytest.mark.parametrize(
    "other",
    [
        LOOSE.set(2, pa.field("x", pa.int64())),
        LOOSE.set(2, pa.field("y", pa.int32())),
        LOOSE.remove(2),
        LOOSE.set(1, pa.field("s", pa.struct({"n": pa.int64(), "l": pa.list_(pa.float64())}))),
        LOOSE.set(1, pa.field("s", pa.list_(pa.int64()))),
    ],
)
def test_other_differences_are_refused(other: pa.Schema) -> None:
    _, (strict, different) = env_with(STRICT, other)
    with pytest.raises(cw.SchemaError, match="union: the schemas differ"):
        strict.union(different)


def test_only_the_streams_that_must_change_get_an_operator_in_their_own_chain() -> None:
    env, (strict, loose) = env_with(STRICT, LOOSE)
    strict.with_parallelism(2)
    strict.union(loose).write(cw.discard(), uid="out")
    plan = env.define("job", 1).plan
    assert [node.uid for node in plan.graph.nodes] == ["s0", "s1", "s0-loosen", "out"]
    assert [[node.uid for node in vertex.members] for vertex in plan.vertices] == [["s0", "s0-loosen"], ["s1"], ["out"]]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", ["as it is", "rebalanced", "rebalanced before", "keyed", "filtered", "with columns"])
def test_records_of_all_of_them_flow_on(shape: str, seed: int) -> None:
    def pipeline(env: cw.Environment) -> None:
        first, second, third = (
            env.read(cw.from_rows([], schema), uid=f"s{n}")
            for n, schema in enumerate((STRICT, LOOSE, STRICT_ELSEWHERE))
        )
        if shape == "rebalanced before":
            first = first.rebalance()
        united = first.union(second, third)
        match shape:
            case "rebalanced":
                united = united.rebalance().map(lambda row: row, LOOSE)
            case "keyed":
                united = united.key_by("k").process(Last, LOOSE).uid("last")
            case "filtered":
                united = united.filter(lambda row: True)
            case "with columns":
                united = united.with_columns("x")
        assert united.schema == LOOSE
        united.collect("out")

    inputs = {
        "s0": script(FULL, CHECKPOINT, FULL, FAIL),
        "s1": script(WITH_NULLS, CHECKPOINT, WITH_NULLS),
        "s2": script(WITHOUT_X_NULL, CHECKPOINT),
    }
    out = run(pipeline, inputs=inputs, parallelism=1 + seed % 2, choose=random.Random(seed).randrange)["out"]
    expected = [row[0::2] for row in [*FULL, *FULL, *WITH_NULLS, *WITH_NULLS, *WITHOUT_X_NULL]]
    assert sorted(map(repr, [(row.k, row.x) for row in out])) == sorted(map(repr, expected))
    if shape != "keyed":
        whole = [*FULL, *FULL, *WITH_NULLS, *WITH_NULLS, *WITHOUT_X_NULL]
        assert sorted(repr(_plain(row)) for row in out) == sorted(map(repr, whole))


def _plain(value: Any) -> Any:
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value
