"""How time is cut into windows and panes."""

import functools
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cutwater as cw
from cutwater.windows import Windows

CUTS = st.builds(
    lambda slide, more, offset: Windows(slide + more, slide, offset),
    st.integers(1, 20), st.integers(0, 50), st.integers(0, 30),
)  # fmt: skip
TIMES = st.integers(-1000, 1000)


def starts_of(windows: Windows, time: int) -> list[int]:
    """Of all windows that a time is in, by trying."""
    around = range(time - windows.size - windows.slide, time + windows.slide + 1)
    return [s for s in around if (s - windows.offset) % windows.slide == 0 and s <= time < s + windows.size]


@given(CUTS, TIMES)
def test_a_record_is_in_the_windows_of_its_pane_and_a_window_is_made_of_its_panes(windows: Windows, time: int) -> None:
    pane = int(windows.panes_of_times(np.array([time]))[0])
    assert pane <= time < pane + windows.pane
    ends = list(windows.ends_of_pane(pane))
    assert ends == [start + windows.size for start in starts_of(windows, time)]
    assert windows.last_ends(np.array([pane])).tolist() == ends[-1:]
    for end in ends:
        panes = list(windows.panes_of_window(end))
        assert pane in panes
        assert panes[0] == end - windows.size and panes[-1] + windows.pane == end


def test_days_may_begin_at_three() -> None:
    days = cw.tumbling("1 day", offset="3h")
    three = timedelta(hours=3) // timedelta(milliseconds=1)
    assert days.panes_of_times(np.array([three, three - 1])).tolist() == [three, three - 86_400_000]


def test_ten_thousand_windows_may_overlap() -> None:
    assert len(list(cw.sliding("10s", "1ms").ends_of_pane(0))) == 10_000


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: cw.tumbling(5), "size=5: a bare number has no unit"),  # type: ignore[arg-type]
        (lambda: cw.tumbling("0s"), "size='0s'"),
        (lambda: cw.tumbling(timedelta(microseconds=1500)), "whole milliseconds"),
        (lambda: cw.tumbling("5s", offset="-1s"), "offset='-1s'"),
        (lambda: cw.sliding("5s", "10s"), "slide='10s' is longer than size='5s'"),
        (lambda: cw.sliding("5s", "soon"), "slide='soon'"),
        (lambda: cw.sliding("10 min", "1ms"), "slide='1ms'.*size='10 min'.* in 600,000 windows; .* at most 10,000"),
        (lambda: cw.sliding("10001ms", "1ms"), "in 10,001 windows"),
        (lambda: cw.sliding("1 day", "7s"), "in 12,343 windows"),
        (lambda: cw.sliding("1h", "7001ms"), "slide='7001ms'.*size='1h'.* 3,600,000 pieces of 1 ms.* at most 10,000"),
    ],
)
def test_a_wrong_window_is_refused_at_the_call(make: object, says: str) -> None:
    with pytest.raises(cw.ConfigError, match=says):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("cut", "says"),
    [
        (
            lambda: cw.tumbling("24h", offset="-8h"),
            "offset='-8h': the duration must be zero or more. A window begins every 24h: offset='16h' moves",
        ),
        (lambda: cw.tumbling("1 day", offset=timedelta(hours=-30)), "A window begins every 24h: offset='18h' moves"),
        (lambda: cw.sliding("1h", "5 min", offset=" - 90s"), "A window begins every 5min: offset='210s' moves"),
        (lambda: cw.tumbling("1s", offset="-1ms"), "A window begins every 1s: offset='999ms' moves"),
        (lambda: cw.tumbling("1h", offset="-2h"), "A window begins every 1h: leave it out."),
        (lambda: cw.tumbling("1h", offset="-soon"), "offset='-soon' is not a duration."),
    ],
)
def test_a_negative_offset_is_refused_with_the_one_that_means_the_same(cut: Callable[[], Any], says: str) -> None:
    with pytest.raises(cw.ConfigError, match=re.escape(says)):
        cut()


def windowed(**arguments: Any) -> Any:
    events = cw.Environment().read(cw.from_rows([], "k string, ts long")).with_timestamps("ts")
    return events.key_by("k").window(cw.tumbling("1s"), **arguments)


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (
            lambda: windowed(early="1s").agg(early=cw.count()),
            "'early' is a column of every result of windows with early=...; choose another name.$",
        ),
        (lambda: windowed().agg(window_end=cw.count()), "'window_end' is a column of every window's result"),
        (
            lambda: windowed().agg(n=pl.col("ts").sum().cast(pl.Int128)),
            r"^agg\(\): column 'n' is Int128, a type that only Polars has",
        ),
        (lambda: windowed().reduce(lambda row: row), r"^reduce: <lambda>\(row\) is called as fn\(reduced, row\)"),
        (lambda: windowed()._keyed.reduce(lambda: None), r"^reduce: <lambda>\(\) is called as fn\(reduced, row\)"),
        (
            lambda: windowed().process(lambda rows: rows, "n long"),
            r"^process: <lambda>\(rows\) is called as fn\(rows, ctx\)",
        ),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(write: Callable[[], Any], says: str) -> None:
    with pytest.raises(cw.ConfigError, match=says):
        write()


def test_functions_whose_parameters_cannot_be_told_are_taken() -> None:
    @functools.wraps(lambda one: one)
    def wrapper(*given: Any) -> Any: ...

    for fn in (max, functools.partial(max, default=0), wrapper, lambda a, b, c=1: a):
        windowed().reduce(fn)
        windowed().process(fn, "n long")
