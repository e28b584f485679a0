"""A row that is kept as it is must be one that would have been admitted field by field, to the same values."""

import datetime as dt
import math
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.errors import DataError
from cutwater.state.place import Place
from cutwater.state.value_types import admission

FIELDS = {
    "long": pa.int64(), "byte": pa.int8(), "unsigned": pa.uint16(), "double": pa.float64(), "float": pa.float32(),
    "flag": pa.bool_(), "text": pa.string(), "raw": pa.binary(), "day": pa.date32(), "list": pa.list_(pa.int64()),
}  # fmt: skip
odd = st.sampled_from([None, True, 1, 1.5, math.nan, -0.0, 2**63, -129, "a", "ä", "\ud800", b"x", [1], np.int64(3),
                       np.float32(0.1), np.True_, dt.date(2026, 1, 1), (1,)])  # fmt: skip


def outcome(admit: Any, value: Any) -> Any:
    try:
        return repr(admit(value)), type(admit(value)).__name__
    except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        return type(error).__name__


@given(st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, max_size=4, unique=True), st.data())
def test_rows_are_admitted_as_their_fields_are(names: list[str], data: Any) -> None:
    struct = pa.struct([pa.field(name, FIELDS[name], nullable=data.draw(st.booleans())) for name in names])
    values = tuple(data.draw(odd) for _ in names)
    each = [
        outcome(lambda v, f=field: None if v is None and f.nullable else admission(f.type)(v), v)
        for field, v in zip(struct, values, strict=True)
    ]
    whole = outcome(admission(struct), values)
    if all(isinstance(one, tuple) for one in each):
        row = admission(struct)(values)
        assert [(repr(v), type(v).__name__) for v in row] == each
        assert type(row)._fields == tuple(names)
    else:
        assert isinstance(whole, str)


def test_a_row_does_not_share_what_can_be_changed() -> None:
    inner = [1]
    kept = admission(pa.struct([("n", pa.int64()), ("l", pa.list_(pa.int64()))]))((1, inner))
    inner.append(2)
    assert kept.l == [1]


FINE = dt.datetime(2026, 1, 2, 3, 4, 5, 678_901, dt.UTC).replace(tzinfo=None)
SECONDS = FINE.replace(microsecond=0)


@pytest.mark.parametrize(
    ("data_type", "value", "unit"),
    [
        (pa.timestamp("s"), FINE, "a second"),
        (pa.timestamp("ms"), FINE, "a millisecond"),
        (pa.timestamp("s", "UTC"), FINE.replace(tzinfo=dt.UTC), "a second"),
        (pa.timestamp("s", "Europe/Berlin"), FINE, "a second"),
        (pa.time32("s"), FINE.time(), "a second"),
        (pa.time32("ms"), FINE.time(), "a millisecond"),
        (pa.duration("s"), dt.timedelta(microseconds=1), "a second"),
        (pa.list_(pa.timestamp("s")), [SECONDS, FINE], "a second"),
    ],
)
def test_a_value_that_is_finer_than_its_type_is_refused_and_not_cut(data_type: Any, value: Any, unit: str) -> None:
    says = rf"^counts: state last is {re.escape(str(data_type))}, which cannot hold .*678901.*: .* unit, {unit}"
    if isinstance(value, dt.timedelta):
        says = rf"^counts: state last is .*, which cannot hold .*microseconds=1.*: .* unit, {unit}"
    with pytest.raises(DataError, match=says):
        Place("counts", "last", data_type).admitted(value)


@pytest.mark.parametrize(
    ("data_type", "value", "kept"),
    [
        (pa.timestamp("s"), SECONDS, SECONDS),
        (pa.timestamp("us"), FINE, FINE),
        (pa.timestamp("s", "UTC"), SECONDS, SECONDS.replace(tzinfo=dt.UTC)),
        (pa.timestamp("us", "Europe/Berlin"), FINE.replace(tzinfo=dt.UTC), FINE.replace(tzinfo=dt.UTC)),
        (pa.time32("s"), SECONDS.time(), SECONDS.time()),
        (pa.time64("us"), FINE.time(), FINE.time()),
        (pa.duration("ms"), dt.timedelta(milliseconds=5), dt.timedelta(milliseconds=5)),
        (pa.date64(), FINE.date(), FINE.date()),
    ],
)
def test_a_value_that_fits_is_kept_as_it_is(data_type: Any, value: Any, kept: Any) -> None:
    assert Place("counts", "last", data_type).admitted(value) == kept


def test_a_date_has_no_time_of_day_in_any_unit() -> None:
    for data_type in (pa.date32(), pa.date64()):
        with pytest.raises(DataError, match="it has a time of day"):
            Place("counts", "last", data_type).admitted(FINE)


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, np.int64(2**53 + 1), 10**18 + 1])
def test_a_whole_number_that_no_float_is_is_refused_and_not_rounded(value: Any) -> None:
    for data_type in (pa.float64(), pa.float32()):
        says = rf"^counts: state last is {data_type}, which cannot hold .*{value}.*: no such number is exactly that"
        with pytest.raises(DataError, match=says):
            Place("counts", "last", data_type).admitted(value)
    with pytest.raises(DataError, match="exactly"):
        Place("counts", "last", pa.struct([("n", pa.float64())])).admitted((value,))
    assert Place("counts", "last", pa.float64()).admitted(float(value)) == float(value)


@pytest.mark.parametrize(
    ("data_type", "value"),
    [(pa.float64(), 2**60), (pa.float64(), -(2**53)), (pa.float32(), 2**25), (pa.float16(), 2048)],
)
def test_a_whole_number_that_a_float_is_is_kept(data_type: Any, value: int) -> None:
    kept = Place("counts", "last", data_type).admitted(value)
    assert (type(kept), int(kept)) == (float, value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (Decimal("1234.5"), "allowed are 3 digits before the point and 2 behind it"),
        (Decimal("1.234"), "allowed are 3 digits before the point and 2 behind it"),
        (Decimal("NaN"), "allowed are 3 digits"),
        (10**40, "allowed are 3 digits"),
        (1.5, "a decimal.Decimal or a whole number is needed"),
        (True, "a decimal.Decimal or a whole number is needed"),
    ],
)
def test_what_a_decimal_cannot_hold_is_told_by_the_digits_that_it_has(value: Any, says: str) -> None:
    place = Place("counts", "last", pa.decimal128(5, 2))
    with pytest.raises(DataError, match=rf"^counts: state last is decimal128\(5, 2\), which cannot hold .*: {says}"):
        place.admitted(value)
    assert place.admitted(7) == Decimal("7.00")
