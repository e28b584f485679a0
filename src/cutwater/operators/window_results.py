"""The columns that say which window a result is of."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cutwater.errors import DataError, SchemaError
from cutwater.flow.arrow import Array
from cutwater.flow.event_time import FIRST_TIME, LAST_TIME, Times
from cutwater.flow.watermarks import Milliseconds
from cutwater.schema import TIMESTAMP

WINDOW_START, WINDOW_END, EARLY = "window_start", "window_end", "early"
LATE = "late"


def windowed(results: pa.Schema, at: int, *, marked: bool) -> pa.Schema:
    """``results`` with the window's columns before column ``at``; ``marked``: with the one that says whether it was still open."""
    names = [(WINDOW_START, TIMESTAMP), (WINDOW_END, TIMESTAMP), *([(EARLY, pa.bool_())] if marked else [])]
    for name, _ in names:
        if name in results.names:
            raise SchemaError(
                f"window: {name!r} is a column of every result of windows with early=...; choose another name."
                if name == EARLY
                else f"window: {name!r} is a column of every window's result; choose another name. Behind another window: "
                ".select('k', 'n', started='window_start').with_timestamps('started')."
            )
    for name, data_type in reversed(names):
        results = results.insert(at, pa.field(name, data_type, nullable=False))
    return results


def of_window(start: Milliseconds, end: Milliseconds, rows: int, early: bool | None) -> list[Array]:
    """The columns for rows of one window; ``early`` None: it is not marked."""
    return of_windows(np.full(rows, start, np.int64), np.full(rows, end, np.int64), early)


def of_windows(starts: Times, ends: Times, early: bool | None) -> list[Array]:
    outside = (starts < FIRST_TIME) | (ends > LAST_TIME)
    if outside.any():
        first = int(outside.argmax())
        refuse_what_no_calendar_has(int(starts[first]), int(ends[first]))
    columns: list[Array] = [pa.array(times * 1000).cast(TIMESTAMP) for times in (starts, ends)]
    if early is not None:
        columns.append(pa.array(np.full(len(starts), early)))
    return columns


def refuse_what_no_calendar_has(start: Milliseconds, end: Milliseconds) -> None:
    """Whoever read such a result would fail, and could not say why. Called when records come, too: what a checkpoint holds no
    filter takes out again."""
    if start < FIRST_TIME or end > LAST_TIME:
        raise DataError(
            f"a window from {start} to {end} (milliseconds since the epoch) is not in the years 1 to 9999. Filter out the records "
            f"that far away before with_timestamps, or use shorter windows."
        )


def with_window(results: pa.RecordBatch, at: int, window: Sequence[Array], schema: pa.Schema) -> pa.RecordBatch:
    columns = results.columns
    columns[at:at] = window
    return pa.RecordBatch.from_arrays(columns, schema=schema)
