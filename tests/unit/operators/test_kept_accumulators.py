"""Aggregates that are kept by key give what those in columns give."""

import decimal
import math
from collections.abc import Callable
from typing import Any

import pytest

import cutwater as cw
from cutwater.testing import run, script
from tests.unit.operators.test_window_steps import Rows

NAN = math.nan
D = decimal.Decimal


Kind = Callable[[Any, dict[str, Any]], cw.Stream]
KINDS: dict[str, Kind] = {
    "in columns": lambda keyed, results: keyed.window(cw.tumbling("1h")).agg(**results),
    "beside an own one": lambda keyed, results: keyed.window(cw.tumbling("1h")).agg(**results, n=Rows()),
    "running beside an own one": lambda keyed, results: keyed.agg(**results, n=Rows()),
    "in a session": lambda keyed, results: keyed.window(cw.session("1h")).agg(**results),
}
OF_ALL_KINDS = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def last_row(kind: Kind, data_type: str, values: list[Any], **results: Any) -> Any:
    """Each value comes in a batch of its own."""

    def pipeline(env: cw.Environment) -> None:
        rows = env.read(cw.from_rows([], f"k string, ts long, x {data_type}"), uid="in")
        kind(rows.with_timestamps("ts").key_by("k"), results).uid("w").collect("out")

    return run(pipeline, {"in": script(*([("a", at, value)] for at, value in enumerate(values)))})["out"][-1]


@OF_ALL_KINDS
@pytest.mark.parametrize("values", [[1.0, NAN, 2.0], [NAN, 2.0, 1.0], [1.0, 2.0, NAN], [2.0, NAN, 1.0]])
def test_nan_is_larger_than_every_number(kind: Kind, values: list[float]) -> None:
    row = last_row(kind, "double", values, lo=cw.min("x"), hi=cw.max("x"))
    assert row.lo == 1.0
    assert math.isnan(row.hi)


@OF_ALL_KINDS
def test_a_sum_of_longs_that_leaves_their_range_is_refused_at_once(kind: Kind) -> None:
    """When it is told it is too late: until then no checkpoint could be written."""
    with pytest.raises(cw.JobFailed, match="the sum 's' left the range of a long"):
        last_row(kind, "long", [2**62, 2**62, 5], s=cw.sum("x"))


@OF_ALL_KINDS
def test_a_sum_of_decimals_that_leaves_their_range_is_refused_at_once(kind: Kind) -> None:
    with pytest.raises(cw.JobFailed, match="the sum 's' left the range of a decimal"):
        last_row(kind, "decimal(38,2)", [D(9) * 10**35, D(9) * 10**35, D(1)], s=cw.sum("x"))


@OF_ALL_KINDS
def test_a_sum_may_fill_its_range(kind: Kind) -> None:
    assert last_row(kind, "long", [2**62, 2**62 - 1], s=cw.sum("x")).s == 2**63 - 1
    assert last_row(kind, "long", [-(2**62), -(2**62)], s=cw.sum("x")).s == -(2**63)
    nines = "9" * 35
    assert last_row(kind, "decimal(38,2)", [D(f"{nines}8.99"), D(1)], s=cw.sum("x")).s == D(f"{nines}9.99")
