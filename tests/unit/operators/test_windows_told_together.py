"""Windows of few records that become due at once are told in one step: the same as if each were told by itself."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.operators import told_windows
from cutwater.operators.operator import Operator
from cutwater.operators.steps import Steps
from cutwater.operators.window_results import of_windows
from cutwater.rows import batch_of
from cutwater.state.backend import StateBackend
from cutwater.testing.clock import ManualClock
from cutwater.windows import Windows
from tests.unit.operators.collecting import Collected, after, opened
from tests.unit.operators.test_window_steps import Rows

EVENT = "k string, f double, ts long, v long, text string"
NEARLY_10000 = 253_402_300_799_000
TOLD_BY: dict[str, Callable[[Any], cw.Stream]] = {
    "columns": lambda w: w.agg(
        n=cw.count(), least=cw.min("text"), first=cw.first("v"), last=cw.last("text"), mean=cw.mean("v")
    ),
    "expressions": lambda w: w.agg(n=cw.count(), texts=cw.collect_list("text"), most=pl.col("v").max()),
    "process": lambda w: w.process(
        lambda rows, ctx: [(str(ctx.key), ctx.window_start, row.v) for row in rows if row.v % 3],
        "key string, start long, v long",
    ),
    "reduce": lambda w: w.reduce(lambda a, b: b),
    "own": lambda w: w.agg(n=Rows()),
}
WINDOWS = {
    "tumbling": cw.tumbling("10ms"),
    "sliding": cw.sliding("30ms", "10ms"),
    "of several pieces": cw.sliding("25ms", "10ms", offset="3ms"),
}
BACKENDS: dict[str, Callable[[Path], StateBackend]] = {
    "memory": lambda _: cw.Memory(),
    "rocksdb": lambda folder: cw.RocksDB(local_directories=[str(folder)]),
    "small cache": lambda folder: cw.RocksDB(cache="4kB", local_directories=[str(folder)]),
}


def window_of(
    how: str,
    windows: Windows,
    backend: StateBackend,
    lateness: str = "0s",
    early: str | None = None,
    steps: Steps | None = None,
    keys: tuple[str, ...] = ("k", "f"),
) -> tuple[Operator, pa.Schema]:
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], EVENT), uid="in").with_timestamps("ts")
    windowed = stream.key_by(*keys).window(windows, allowed_lateness=lateness, early=early)
    return opened(TOLD_BY[how](windowed), backend, steps=steps), stream.schema


def give(operator: Operator, schema: pa.Schema, rows: list[tuple[Any, ...]], out: Collected) -> None:
    operator.process(batch_of(rows, schema, "test"), operator.input_ports - 1, out)


def records(chance: random.Random, first: int) -> list[tuple[Any, ...]]:
    """Mostly some for each window, and many for a few."""
    times = [first + chance.randrange(800) for _ in range(80)] + [first + 500 + chance.randrange(9)] * 30
    keys = [(chance.choice(["a", "b", None]), chance.choice([0.0, -0.0, float("nan"), None])) for _ in times]
    return [
        (*key, time, n, chance.choice(["x", "yy", None])) for n, (key, time) in enumerate(zip(keys, times, strict=True))
    ]


def told(operator: Operator, schema: pa.Schema) -> tuple[list[str], dict[str, list[str]], int]:
    """Also late records, and results that late ones changed."""
    out = Collected()
    chance = random.Random(5)
    batches = 0
    rows: list[str] = []
    for turn in range(4):
        give(operator, schema, records(chance, 400 * turn), out)
        after(operator.on_processing_time(1000 * turn, out))
        after(operator.on_watermark(900 * turn + 600, out))
        batches += len(out.batches)
        rows += map(repr, out.taken())
    after(operator.on_watermark(10_000, out))
    batches += len(out.batches)
    rows += map(repr, out.taken())
    assert sum(batch.num_rows for batch in operator.snapshot(1).tables[0].batches()) == 0  # type: ignore[arg-type, union-attr]
    operator.close()
    return rows, {tag: list(map(repr, late)) for tag, late in out.side.items()}, batches


@pytest.mark.parametrize("how", TOLD_BY)
@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("lateness", "early"), [("0s", None), ("400ms", None), ("0s", "1s")])
def test_windows_that_are_told_together_have_the_same_results_in_the_same_order(
    how: str,
    windows: str,
    backend: str,
    lateness: str,
    early: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(told_windows, "ROWS_TOGETHER", 25)
    found = []
    for most in (256, 1):
        monkeypatch.setattr(told_windows, "WINDOWS_TOGETHER", most)
        (folder := tmp_path / str(most)).mkdir()
        found.append(told(*window_of(how, WINDOWS[windows], BACKENDS[backend](folder), lateness, early)))
    (rows, late, batches), (rows_by_one, late_by_one, batches_by_one) = found
    assert rows == rows_by_one
    assert late == late_by_one
    assert late
    assert batches < batches_by_one
    if backend != "small cache" and early is None and lateness == "0s":
        assert 2 * batches < batches_by_one


@pytest.mark.parametrize("how", TOLD_BY)
@pytest.mark.parametrize("key", ["k", "f", "v"])
def test_windows_of_one_key_column_are_told_together_too(how: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for most in (256, 1):
        monkeypatch.setattr(told_windows, "WINDOWS_TOGETHER", most)
        found.append(told(*window_of(how, WINDOWS["sliding"], cw.Memory(), keys=(key,)))[:2])
    assert found[0] == found[1]


def test_the_one_that_no_calendar_has_is_named() -> None:
    """It comes from a checkpoint: of those that come now the first record is refused."""
    starts = np.array([0, 1000, NEARLY_10000, 2000])
    with pytest.raises(cw.DataError, match=f"a window from {NEARLY_10000} to {NEARLY_10000 + 1000} "):
        of_windows(starts, starts + 1000, None)


@pytest.mark.parametrize("how", TOLD_BY)
def test_no_more_rows_are_told_together_than_a_step_may_have(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told_windows, "ROWS_TOGETHER", 12)
    operator, schema = window_of(how, cw.tumbling("1s"), cw.Memory())
    out = Collected()
    give(operator, schema, [(f"k{key}", 0.0, 1000 * n, 1, "x") for n in range(50) for key in range(5)], out)
    after(operator.on_watermark(100_000, out))
    sizes = [batch.num_rows for batch in out.batches]
    assert sum(sizes) == 5 * 50
    assert max(sizes) == 10


@pytest.mark.parametrize("how", ["columns", "expressions", "process"])
def test_no_more_bytes_are_told_together_than_a_step_may_have(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told_windows, "BYTES_TOGETHER", 25_000)
    operator, schema = window_of(how, cw.tumbling("1s"), cw.Memory())
    out = Collected()
    give(operator, schema, [("k", 0.0, 1000 * n, 1, "x" * 5_000) for n in range(50)], out)
    after(operator.on_watermark(100_000, out))
    sizes = [batch.num_rows for batch in out.batches]
    assert sum(sizes) == 50
    assert 1 < max(sizes) < 6


def test_whoever_is_slow_behind_windows_gets_few_of_them_in_a_step() -> None:
    """A cut waits until the step ends."""
    clock = ManualClock()
    a_call = 0.01

    class Slow(Collected):
        def emit(self, batch: pa.RecordBatch) -> None:
            clock.advance(a_call * batch.num_rows)

    operator, schema = window_of("columns", cw.tumbling("1s"), cw.Memory(), steps=Steps(clock.monotonic, 2.5 * a_call))
    out = Slow()
    give(operator, schema, [("k", 0.0, 1000 * n, 1, "x") for n in range(50)], out)
    began, longest = clock.monotonic(), 0.0
    for _ in operator.on_watermark(100_000, out):
        longest = max(longest, clock.monotonic() - began)
        began = clock.monotonic()
    assert longest == pytest.approx(2 * a_call)
    assert clock.monotonic() == pytest.approx(50 * a_call)
