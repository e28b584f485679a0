"""When records happened, in milliseconds."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from cutwater.errors import DataError, SchemaError
from cutwater.flow.event_time import EventTime
from cutwater.rows import batch_of
from cutwater.schema import arrow_schema


def times(schema: str, *values: object, time: EventTime) -> list[int]:
    return time.of(batch_of(list(values), arrow_schema(schema), "test"), "test").tolist()  # type: ignore[no-any-return]


def test_of_timestamps_and_of_longs() -> None:
    moment = datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC)
    assert times("ts timestamp", (moment,), time=EventTime(("ts",))) == [-1], "down, also before 1970"
    assert times("ts timestamp_ntz", (datetime(1970, 1, 1, 0, 0, 1),), time=EventTime(("ts",))) == [1000]  # noqa: DTZ001
    assert times("ts long", (7,), time=EventTime(("ts",))) == [7]
    assert times("ts int", (7,), time=EventTime(("ts",), shift=-1)) == [6]


def test_a_joined_record_happened_when_the_later_one_did() -> None:
    assert times("a long, b long", (1, 2), (4, 3), time=EventTime(("a", "b"))) == [2, 4]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_every_unit(unit: str) -> None:
    array = pa.array([datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)], pa.timestamp(unit, "UTC"))
    assert EventTime(("ts",)).of(pa.RecordBatch.from_arrays([array], ["ts"]), "x").tolist() == [1000]


def test_a_record_without_a_time_is_refused() -> None:
    with pytest.raises(DataError, match="1 of 2 records have no value in the time column 'ts'"):
        times("ts long", (1,), (None,), time=EventTime(("ts",)))


YEAR_10000 = 253_402_300_800_000


@pytest.mark.parametrize("wrong", [2**63 - 1, -(2**63), 1_700_000_000_000_000, 1_700_000_000_000_000_000, YEAR_10000])
def test_a_long_that_is_no_time_in_milliseconds_is_refused(wrong: int) -> None:
    with pytest.raises(DataError, match=f"{wrong} in the time column 'ts'; milliseconds since the epoch") as caught:
        times("ts long", (5,), (wrong,), time=EventTime(("ts",)))
    assert str(caught.value).startswith("test: ")


def test_the_first_and_the_last_time_of_the_calendar_are_times() -> None:
    first, last = -62_135_596_800_000, YEAR_10000 - 1
    assert times("ts long", (first,), (last,), time=EventTime(("ts",))) == [first, last]
    moments = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
    assert times("ts timestamp", *((each,) for each in moments), time=EventTime(("ts",))) == [first, last]
    assert times("ts long", (YEAR_10000,), time=EventTime(("ts",), shift=-1)) == [last], "the window that ends there"


@pytest.mark.parametrize(
    ("number", "data_type"),
    [
        (2**60, pa.timestamp("s")),
        (2**60, pa.timestamp("us", "UTC")),
        (-(2**60), pa.timestamp("ms")),
        (2**63, pa.uint64()),
    ],
)
def test_a_time_that_no_calendar_has_is_refused_whatever_its_unit(number: int, data_type: pa.DataType) -> None:
    column = pa.array([number], data_type)
    with pytest.raises(DataError, match=f"{number} in the time column 'ts'"):
        EventTime(("ts",)).of(pa.RecordBatch.from_arrays([column], ["ts"]), "test")


def test_a_column_that_can_hold_no_time_is_refused() -> None:
    with pytest.raises(SchemaError, match="the time column 'ts' is string; a timestamp, or a long"):
        EventTime(("ts",)).check(arrow_schema("ts string"), "test")
    with pytest.raises(SchemaError, match="'tz'"):
        EventTime(("tz",)).check(arrow_schema("ts long"), "test")


def test_time_is_kept_as_long_as_its_column_is() -> None:
    before, time = arrow_schema("k string, ts long"), EventTime(("ts",))
    assert time.is_kept(before, arrow_schema("ts long, x string"))
    assert not time.is_kept(before, arrow_schema("k string"))
    assert not time.is_kept(before, arrow_schema("ts string"))
