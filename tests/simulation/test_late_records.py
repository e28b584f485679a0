"""Which records are late, and what is told of all others: computed to the millisecond, and compared with what comes out.

A record is late by the watermark that it meets. That follows from the batches before it, as long as each has been processed
when the next one comes: at any parallelism, with one script to read, and over failures that repeat nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import cutwater as cw
from cutwater.flow.watermarks import MAX_WATERMARK, MIN_WATERMARK
from cutwater.operators import grid_windows, window_aggregate, window_panes
from cutwater.operators.session_windows import SessionWindows
from cutwater.operators.window_results import LATE
from cutwater.subtask.chain import _Outlet
from cutwater.subtask.pace import Pace
from cutwater.subtask.subtask import Subtask
from cutwater.testing import ADVANCE, CHECKPOINT, FAIL, TRIGGER, run, script
from cutwater.windows import Sessions, Windows
from tests.simulation.test_windows import EVENT, KINDS, ON_DISK, TOLD_BY, millis, windows_of

Record = tuple[str | None, int, int]
Told = Counter[tuple[str | None, int, int, int]]
"""Key, start, end and how many records: each time that a window is told."""
Late = Counter[tuple[str | None, int]]

MOST_ROWS = 1000
SETTLE = ADVANCE("1s")
"""Time in which everybody hears of the watermark."""


@dataclass(frozen=True, slots=True)
class Case:
    batches: list[tuple[list[Record], tuple[Any, ...]]]
    """Each with what happens behind it."""
    windows: Windows | Sessions
    how: str
    lateness: int
    out_of_orderness: int
    parallelism: int


def cases(windows: list[Any]) -> st.SearchStrategy[Case]:
    record = st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 40), st.just(1))
    behind = [(SETTLE,), (SETTLE, TRIGGER), (SETTLE, CHECKPOINT, FAIL), (CHECKPOINT, FAIL, SETTLE)]
    batch = st.tuples(st.lists(record, min_size=1, max_size=3), st.sampled_from(behind))
    return st.builds(
        Case,
        st.lists(batch, max_size=10),
        st.sampled_from(windows),
        st.sampled_from(sorted(TOLD_BY)),
        lateness=st.sampled_from([0, 3, 10]),
        out_of_orderness=st.sampled_from([0, 5]),
        parallelism=st.integers(1, 3),
    )


# --- what must come out -------------------------------------------------------------------------------------------------


def watermarks(case: Case) -> Iterator[tuple[list[Record], int, int]]:
    """Each batch with the watermark that its records meet, and the one behind it; in the end that of all input."""
    before = MIN_WATERMARK
    for records, _ in case.batches:
        behind = max(before, max(ts for _, ts, _ in records) - case.out_of_orderness - 1)
        yield records, before, behind
        before = behind
    yield [], before, MAX_WATERMARK


def of_grid(case: Case) -> tuple[Told, Late]:
    windows, lateness = case.windows, case.lateness
    assert isinstance(windows, Windows)
    told: Told = Counter()
    late: Late = Counter()
    rows: Counter[tuple[str | None, int]] = Counter()
    for records, before, behind in watermarks(case):
        changed = set()
        for key, ts, _ in records:
            starts = [start for start in windows_of(windows, ts) if start + windows.size - 1 + lateness > before]
            if not starts:
                late[key, ts] += 1
            for start in starts:
                rows[key, start] += 1
                changed.add((key, start))
        again = {each for each in changed if each[1] + windows.size - 1 <= before}
        ended = {each for each in rows if before < each[1] + windows.size - 1 <= behind}
        told.update((key, start, start + windows.size, rows[key, start]) for key, start in again | ended)
    return told, late


def of_sessions(case: Case) -> tuple[Told, Late]:
    """A session is its start, its end and how many records it has."""
    sessions, lateness = case.windows, case.lateness
    assert isinstance(sessions, Sessions)
    told: Told = Counter()
    late: Late = Counter()
    kept: dict[str | None, list[tuple[int, int, int]]] = defaultdict(list)
    for records, before, behind in watermarks(case):
        for key, times in fragments(records, sessions.gap):
            start, end, rows = times[0], times[-1] + sessions.gap, len(times)
            touched = [each for each in kept[key] if each[0] <= end and start <= each[1]]
            start, end = min([start, *(each[0] for each in touched)]), max([end, *(each[1] for each in touched)])
            if end - 1 + lateness <= before:
                late.update((key, ts) for ts in times)
                continue
            grown = (start, end, rows + sum(each[2] for each in touched))
            kept[key] = [each for each in kept[key] if each not in touched] + [grown]
            if end - 1 <= before:
                told[key, *grown] += 1
        for key, of_key in kept.items():
            told.update((key, *each) for each in of_key if before < each[1] - 1 <= behind)
            kept[key] = [each for each in of_key if each[1] - 1 + lateness > behind]
    return told, late


def fragments(records: list[Record], gap: int) -> Iterator[tuple[str | None, list[int]]]:
    """The times of a key that are in one session whatever was there before: those of a batch come into it together."""
    for key in {key for key, _, _ in records}:
        times = sorted(ts for of, ts, _ in records if of == key)
        begins = [at for at, ts in enumerate(times) if at == 0 or ts - times[at - 1] > gap]
        yield from ((key, times[first:end]) for first, end in zip(begins, [*begins[1:], len(times)], strict=True))


# --- what comes out -------------------------------------------------------------------------------------------------------


@contextmanager
def whole_batches() -> Iterator[None]:
    """All that a script has up to the next mark is one batch, for the source and for whoever it is sent to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Subtask, "_new_pace", lambda self: Pace(1.0, MOST_ROWS, first_rows=MOST_ROWS))
        yield


def found(case: Case, backend: cw.StateBackend) -> tuple[Told, Late]:
    def pipeline(env: cw.Environment) -> None:
        events = env.read(cw.from_rows([], EVENT), uid="in")
        timed = events.with_timestamps("ts", out_of_orderness=f"{case.out_of_orderness}ms")
        windowed = timed.key_by("k").window(case.windows, allowed_lateness=f"{case.lateness}ms")
        told = TOLD_BY[case.how](windowed).uid("w")
        told.collect("out")
        told.side_output("late").collect("late")

    steps = [step for records, behind in case.batches for step in (records, *behind)]
    with whole_batches():
        got = run(pipeline, {"in": script(*steps)}, parallelism=case.parallelism, state_backend=backend)
    rows = "v" if case.how == "reduce" else "n"
    told = Counter((row.k, millis(row.window_start), millis(row.window_end), row[rows]) for row in got["out"])
    return told, Counter((row.k, row.ts) for row in got["late"])


def expected(case: Case) -> tuple[Told, Late]:
    return of_grid(case) if isinstance(case.windows, Windows) else of_sessions(case)


GRIDS = cases([*KINDS, cw.sliding("9ms", "2ms")])
SESSIONS = cases([cw.session("3ms"), cw.session("8ms")])


@settings(max_examples=40)
@given(GRIDS)
def test_windows_tell_just_what_was_in_time_and_give_all_else_away(case: Case) -> None:
    assert found(case, cw.Memory()) == expected(case)


@settings(max_examples=40)
@given(SESSIONS)
def test_sessions_tell_just_what_was_in_time_and_give_all_else_away(case: Case) -> None:
    assert found(case, cw.Memory()) == expected(case)


@settings(max_examples=6)
@given(st.one_of(GRIDS, SESSIONS), ON_DISK)
def test_what_is_late_on_disk_is_what_is_late_in_memory(case: Case, backend: cw.RocksDB) -> None:
    assert found(case, backend) == expected(case)


# --- broken on purpose ------------------------------------------------------------------------------------------------


def _lateness_lasts(patch: pytest.MonkeyPatch, longer: int) -> None:
    """By so many milliseconds."""
    real = window_panes.is_over
    for module in (window_panes, window_aggregate, grid_windows):
        patch.setattr(module, "is_over", lambda windows, lateness, *more: real(windows, lateness + longer, *more))
    reached_of = SessionWindows._reached_of
    patch.setattr(SessionWindows, "_reached_of", lambda self, rows: [each - longer for each in reached_of(self, rows)])


def _lateness_ends_a_millisecond_too_soon(patch: pytest.MonkeyPatch) -> None:
    _lateness_lasts(patch, -1)


def _lateness_lasts_a_millisecond_too_long(patch: pytest.MonkeyPatch) -> None:
    _lateness_lasts(patch, 1)


def _late_records_are_dropped_silently(patch: pytest.MonkeyPatch) -> None:
    real = _Outlet.emit_side

    def emit_side(self: _Outlet, tag: str, batch: pa.RecordBatch) -> None:
        if tag != LATE:
            real(self, tag, batch)

    patch.setattr(_Outlet, "emit_side", emit_side)


@pytest.mark.parametrize("drawn", [GRIDS, SESSIONS], ids=["windows", "sessions"])
@pytest.mark.parametrize(
    "break_it",
    [
        _lateness_ends_a_millisecond_too_soon,
        _lateness_lasts_a_millisecond_too_long,
        _late_records_are_dropped_silently,
    ],
    ids=lambda each: each.__name__[1:],
)
def test_a_broken_rule_is_caught(
    break_it: Callable[[pytest.MonkeyPatch], None], drawn: st.SearchStrategy[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        break_it(patch)
        caught = find(
            drawn,
            lambda case: found(case, cw.Memory()) != expected(case),
            settings=settings(max_examples=200, derandomize=True, database=None, phases=[Phase.generate]),
        )
    assert found(caught, cw.Memory()) == expected(caught)
