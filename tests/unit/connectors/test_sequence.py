"""Numbers: each once, in any number of splits, across any cuts, and at the rate that was asked for."""

import math
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.connectors.sequence import CATCH_UP_SECONDS, SequenceReader, SequenceSource, sequence
from cutwater.connectors.source import END
from cutwater.errors import ConfigError
from tests.unit.connectors.reading import read_all, read_split


class HandClock:
    """Time that moves only by sleeping, or by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@given(
    n=st.integers(0, 50),
    start=st.integers(-10, 10),
    parallelism=st.integers(1, 7),
    sessions=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=8),
)
def test_every_number_comes_once_however_the_reading_is_cut(
    n: int, start: int, parallelism: int, sessions: Any
) -> None:
    read = [row["value"] for row in read_all(sequence(n, start=start), parallelism, sessions)]
    assert sorted(read) == list(range(start, start + n))


def test_split_s_of_p_emits_every_pth_number_from_s_on() -> None:
    source = sequence(8, start=100)
    rows, _ = read_split(source, source.splits_for(3)[1])
    assert [row["value"] for row in rows] == [101, 104, 107]


def test_without_n_there_is_no_end() -> None:
    source = sequence(None)
    assert not source.bounded
    reader = SequenceReader(source, 0, 1, 10**12)
    batch = reader.next_batch(3, timedelta(0))
    assert isinstance(batch, pa.RecordBatch)
    assert batch.column(0).to_pylist() == [10**12, 10**12 + 1, 10**12 + 2]


@pytest.mark.parametrize(("rate", "parallelism"), [(3.0, 1), (10.0, 4), (50_000.0, 2)])
def test_rows_come_at_the_rate_of_the_whole_source(rate: float, parallelism: int) -> None:
    clock = HandClock()
    reader = _paced(sequence(None, rate=rate), parallelism, clock)
    begin, rows = clock.now, 0
    while clock.now < begin + 10:
        batch = reader.next_batch(1000, timedelta(milliseconds=50))
        if isinstance(batch, pa.RecordBatch):
            rows += batch.num_rows
        clock.now += 0.001
    assert rows == pytest.approx(10 * rate / parallelism, rel=0.02, abs=1)


def test_a_paced_reader_never_waits_longer_than_it_may() -> None:
    clock = HandClock()
    reader = _paced(sequence(None, rate=0.5), 1, clock)
    before = clock.now
    assert reader.next_batch(10, timedelta(milliseconds=20)) is None
    assert clock.now == pytest.approx(before + 0.02)


def test_a_pause_is_not_followed_by_a_burst() -> None:
    clock = HandClock()
    reader = _paced(sequence(None, rate=1000), 1, clock)
    clock.now += 3600
    batch = reader.next_batch(100_000, timedelta(milliseconds=10))
    assert isinstance(batch, pa.RecordBatch)
    assert batch.num_rows <= 1000 * CATCH_UP_SECONDS + 1


def test_the_last_rows_do_not_wait_for_a_full_chunk() -> None:
    clock = HandClock()
    reader = _paced(sequence(3, rate=1_000_000), 1, clock)
    batch = reader.next_batch(1000, timedelta(milliseconds=10))
    assert isinstance(batch, pa.RecordBatch)
    assert batch.num_rows == 3
    assert reader.next_batch(1000, timedelta(0)) is END


@pytest.mark.parametrize(
    "arguments",
    [
        {"n": -1},
        {"n": 1.5},
        {"n": True},
        {"n": 2**70},
        {"n": 1, "rate": 0},
        {"n": 1, "rate": "fast"},
        {"n": 1, "rate": math.inf},
        {"n": 1, "rate": math.nan},
        {"n": 1, "start": None},
        {"n": 5, "start": 2**63},
        {"n": None, "start": 2**63},
        {"n": 5, "start": -(2**63) - 1},
        {"n": 10, "start": 2**63 - 2},
    ],
)
def test_wrong_arguments_are_refused_by_name(arguments: Any) -> None:
    wrong = next(name for name in ("start", "rate", "n") if name in arguments)
    with pytest.raises(ConfigError, match=f"{wrong}="):
        sequence(**arguments)


def test_a_sequence_may_end_with_the_highest_number_there_is() -> None:
    assert [row["value"] for row in read_all(sequence(3, start=2**63 - 4), 2)] == [2**63 - 4, 2**63 - 2, 2**63 - 3]
    assert [row["value"] for row in read_all(sequence(2, start=-(2**63)))] == [-(2**63), -(2**63) + 1]


def _paced(source: SequenceSource, parallelism: int, clock: HandClock) -> SequenceReader:
    return SequenceReader(source, 0, parallelism, 0, clock, clock.sleep)
