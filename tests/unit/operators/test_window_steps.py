"""What a watermark makes due may be much: the loop comes by between parts of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.flow.ids import CheckpointId
from cutwater.operators import kept_windows, told_windows, window_rows
from cutwater.operators.operator import Operator
from cutwater.operators.session_windows import SESSIONS_A_STEP
from cutwater.rows import batch_of
from cutwater.state import (
    memory_aggregates,
    memory_panes,
    rocksdb_bucket_entries,
    rocksdb_buckets,
    rocksdb_layout,
    rocksdb_panes,
)
from cutwater.state.key_index import KeyIndex
from cutwater.state.memory import Memory
from cutwater.state.parted_dict import PartedDict
from cutwater.state.tables import Touched
from cutwater.windows import Sessions
from tests.unit.operators.collecting import Collected, after, opened

KEYS = 20_000
ROWS = 6_000


class Rows(cw.AggregateFunction):
    accumulator_type = "long"
    result_type = "long"

    def create(self) -> Any:
        return 0

    def add(self, accumulator: Any, row: Any) -> Any:
        return accumulator + 1

    def merge(self, a: Any, b: Any) -> Any:
        return a + b

    def result(self, accumulator: Any) -> Any:
        return accumulator


TOLD_BY: dict[str, Any] = {
    "own": lambda w: w.agg(n=Rows()),
    "expressions": lambda w: w.agg(values=cw.collect_list("v")),
    "reduce": lambda w: w.reduce(lambda a, b: a),
    "process": lambda w: w.process(lambda rows, ctx: [(len(rows),)], "n long"),
}


def told_in_steps(operator: Operator, watermark: int, out: Collected) -> list[int]:
    """How many rows each step gave."""
    told = [len(out.taken()) for _ in operator.on_watermark(watermark, out)]
    return [*told, len(out.taken())]


def kept_rows(operator: Operator) -> int:
    return sum(batch.num_rows for batch in operator.snapshot(2).tables[0].batches())  # type: ignore[arg-type, union-attr]


@pytest.mark.parametrize("lateness", ["0s", "10s"])
@pytest.mark.parametrize("windows", [cw.tumbling("1s"), cw.session("1s")])
@pytest.mark.parametrize("how", TOLD_BY)
def test_a_window_of_many_keys_is_told_in_steps_and_forgotten_in_steps(how: str, windows: Any, lateness: str) -> None:
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], "k string, ts long, v long"), uid="in").with_timestamps("ts")
    windowed = stream.key_by("k").window(windows, allowed_lateness=lateness)
    operator, out = opened(TOLD_BY[how](windowed), Memory()), Collected()
    operator.process(batch_of([(f"k{n}", 0, 1) for n in range(KEYS)], stream.schema, "test"), 0, out)
    told = told_in_steps(operator, 2_000, out)
    assert sum(told) == KEYS
    assert max(told) <= KEYS // 4
    if lateness != "0s":
        assert kept_rows(operator) > 0
        forgotten = told_in_steps(operator, 12_000, out)
        assert set(forgotten) == {0}
        if isinstance(windows, Sessions):
            assert len(forgotten) >= KEYS // SESSIONS_A_STEP, "forgetting is work too"
    assert out.times == ([2_000] if lateness == "0s" else [2_000, 12_000])
    assert kept_rows(operator) == 0


@pytest.mark.parametrize("how", [*TOLD_BY, "in columns"])
def test_windows_that_are_done_with_at_once_are_forgotten_in_steps(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told_windows, "DROPPED_TOGETHER", 4)
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], "k string, ts long, v long"), uid="in").with_timestamps("ts")
    windowed = stream.key_by("k").window(cw.tumbling("1s"), allowed_lateness="1h")
    told_by = TOLD_BY.get(how, lambda windowed: windowed.agg(n=cw.count()))
    operator, out = opened(told_by(windowed), Memory()), Collected()
    port = operator.input_ports - 1  # that of records
    operator.process(batch_of([("k", 1000 * n, 1) for n in range(100)], stream.schema, "test"), port, out)
    told_in_steps(operator, 100_000, out)
    assert len(told_in_steps(operator, 10_000_000, out)) >= 100 // 4
    assert kept_rows(operator) == 0


def test_sessions_that_are_told_and_forgotten_by_one_watermark_are_told_in_steps() -> None:
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], "k string, ts long, v long"), uid="in").with_timestamps("ts")
    operator = opened(stream.key_by("k").window(cw.session("1s"), allowed_lateness="1s").agg(n=Rows()), Memory())
    out = Collected()
    rows = [(f"k{n}", start, 1) for start in (0, 5_000) for n in range(KEYS // 2)]
    operator.process(batch_of(rows, stream.schema, "test"), 0, out)
    told = told_in_steps(operator, 20_000, out)
    assert sum(told) == KEYS
    assert max(told) <= KEYS // 4
    assert kept_rows(operator) == 0


@pytest.mark.parametrize("most_in_a_dict", [0, 1 << 20])
def test_the_keys_of_a_sliding_window_are_gathered_in_steps_between_which_a_cut_may_come(
    most_in_a_dict: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_windows, "KEYS_GATHERED", 500)
    monkeypatch.setattr(kept_windows, "MOST_IN_A_DICT", most_in_a_dict)
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], "k string, ts long"), uid="in").with_timestamps("ts")
    operator = opened(stream.key_by("k").window(cw.sliding("2s", "1s")).agg(n=Rows()), Memory())
    out = Collected()
    for second in (0, 1, 1):
        rows = [(f"k{n}", 1000 * second) for n in range(1000 * second, 1000 * second + 3000)]
        operator.process(batch_of(rows, stream.schema, "test"), 0, out)
    for _ in operator.on_watermark(1_000, out):
        pass
    out.taken()
    steps = [(operator.may_be_cut, len(out.batches)) for _ in operator.on_watermark(2_000, out)]
    assert steps[: 2 * 3000 // 500] == [(True, 0)] * (2 * 3000 // 500)
    counts = {n: 1 if n < 1000 else 3 if n < 3000 else 2 for n in range(4000)}
    assert sorted(row[0::3] for row in out.taken()) == sorted((f"k{n}", count) for n, count in counts.items())
    for _ in operator.on_watermark(10_000, out):
        pass
    assert len(out.taken()) == 3000
    assert kept_rows(operator) == 0


def test_the_keys_of_a_sliding_window_are_let_go_of_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million of them at once take longer than the loop may stand still."""
    gathered: list[PartedDict] = []
    monkeypatch.setattr(kept_windows, "PartedDict", lambda: gathered.append(PartedDict()) or gathered[-1])
    monkeypatch.setattr(kept_windows, "MOST_IN_A_DICT", 0)
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], "k string, ts long"), uid="in").with_timestamps("ts")
    operator = opened(stream.key_by("k").window(cw.sliding("2s", "1s")).agg(n=Rows()), Memory())
    out = Collected()
    rows = [(f"k{n}", 1000 * second) for second in (0, 1) for n in range(ROWS)]
    operator.process(batch_of(rows, stream.schema, "test"), 0, out)
    after(operator.on_watermark(1_000, out))
    out.taken()
    told = 0
    for _ in operator.on_watermark(2_000, out):
        told += len(out.taken())
        if told:
            assert len(gathered[0]) == ROWS - told
    assert told == ROWS


class Work:
    """How many rows and batches something was done with since it was last asked."""

    def __init__(self) -> None:
        self._rows: list[int] = []

    def note(self, rows: int) -> None:
        self._rows.append(rows)

    def taken(self) -> tuple[int, int]:
        rows, self._rows = self._rows, []
        return sum(rows), len(rows)


@pytest.mark.parametrize("few", [1, 16])
@pytest.mark.parametrize("cache", [None, "1GB", "40kB", "1kB"])
def test_many_rows_of_a_window_are_read_in_steps_whatever_is_frozen_meanwhile(
    cache: str | None, few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered, read = Work(), Work()

    class Index(KeyIndex):
        def locate(self, columns: Sequence[Any], records: int) -> Touched:
            numbered.note(records)
            return super().locate(columns, records)

    def read_batch(message: bytes, schema: pa.Schema) -> pa.RecordBatch:
        batch = rocksdb_layout.batch_of(message, schema)
        read.note(batch.num_rows)
        return batch

    monkeypatch.setattr(window_rows, "KeyIndex", Index)
    monkeypatch.setattr(window_rows, "ROWS_READ", 500)
    monkeypatch.setattr(window_rows, "BATCHES_READ", 50)
    monkeypatch.setattr(rocksdb_buckets, "batch_of", read_batch)
    monkeypatch.setattr(rocksdb_buckets, "READ_ROWS", 500)
    monkeypatch.setattr(rocksdb_bucket_entries, "FEW_ROWS", few)
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], "k string, ts long, v long"), uid="in").with_timestamps("ts")
    windowed = stream.key_by("k").window(cw.tumbling("1s")).agg(values=cw.collect_list("v"))
    backend = Memory() if cache is None else cw.RocksDB(cache=cache, local_directories=[str(tmp_path)])
    operator, out = opened(windowed, backend), Collected()
    if cache is not None:
        codec = vars(operator)["_table"]._codec
        decode = codec.decode

        def read_rows(values: Sequence[bytes]) -> Any:
            read.note(len(values))
            return decode(values)

        monkeypatch.setattr(codec, "decode", read_rows)
    for start in range(0, KEYS, 1000):
        rows = [(f"k{n % 300}", 0, n) for n in range(start, start + 1000)]
        operator.process(batch_of(rows, stream.schema, "test"), 0, out)
    steps, stored = [], 0
    for _ in operator.on_watermark(2_000, out):
        steps.append(numbered.taken()[0])
        rows_read, batches_read = read.taken()
        stored += rows_read
        assert rows_read <= 2 * 500
        assert batches_read <= 50
        if operator.may_be_cut and not out.batches and len(steps) % 10 == 1:
            freeze(operator, KEYS)
    assert max(steps) <= 2 * 500
    assert sum(steps) == KEYS
    assert (stored > KEYS // 2) is (cache in ("40kB", "1kB")), "from RocksDB"
    assert {row[0]: row[-1] for row in out.rows()} == {f"k{n}": [*range(n, KEYS, 300)] for n in range(300)}
    operator.close()


@pytest.mark.parametrize("how", ["process", "expressions"])
def test_wide_rows_of_a_window_are_read_few_at_a_time(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of some thousand may be more than one column holds."""
    room, width = 100_000, 1000
    monkeypatch.setattr(window_rows, "BYTES_READ", room)
    sizes: list[int] = []
    for name in ("joined", "taken"):
        make = getattr(window_rows, name)

        def noting(*args: Any, make: Any = make) -> pa.RecordBatch:
            sizes.append((made := make(*args)).nbytes)
            return made  # type: ignore[no-any-return]

        monkeypatch.setattr(window_rows, name, noting)
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], "k string, ts long, v string"), uid="in").with_timestamps("ts")
    operator = opened(TOLD_BY[how](stream.key_by("k").window(cw.tumbling("1s"))), Memory())
    rows = [(f"k{n}", 0, "x" * width) for n in range(1000)]
    operator.process(batch_of(rows, stream.schema, "test"), 0, Collected())
    assert sum(told_in_steps(operator, 2_000, Collected())) == 1000
    assert len(sizes) > 2 * 1000 * width / (2 * room)
    assert max(sizes) < 2 * room


def test_of_a_window_that_is_not_in_memory_some_keys_are_at_a_time_and_no_cut_comes_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    class Index(KeyIndex):
        """A new one begins when the rows of the one before are told."""

        def __init__(self, keys: pa.Schema) -> None:
            super().__init__(keys)
            held.append(0)

        def locate(self, columns: Sequence[Any], records: int) -> Touched:
            held[-1] += records
            return super().locate(columns, records)

    monkeypatch.setattr(window_rows, "KeyIndex", Index)
    monkeypatch.setattr(rocksdb_buckets, "SHARE_ROWS", 200)
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], "k string, ts long, v long"), uid="in").with_timestamps("ts")
    windowed = stream.key_by("k").window(cw.sliding("4s", "1s")).agg(values=cw.collect_list("v"))
    operator, out = opened(windowed, cw.RocksDB(cache="40kB", local_directories=[str(tmp_path)])), Collected()
    for start in range(0, ROWS, 1000):
        rows = [(f"k{n % 300}", n // 300 % 4 * 1000, n) for n in range(start, start + 1000)]
        operator.process(batch_of(rows, stream.schema, "test"), 0, out)
    told_in_steps(operator, 3_000, out)
    held.clear()
    told: dict[str, list[int]] = {}
    for _ in operator.on_watermark(4_000, out):
        if not told:
            freeze(operator, ROWS)
        told |= {row[0]: row[-1] for row in out.taken()}
        if len(told) < 300:
            assert operator.may_be_cut is (not told)
    assert told == {f"k{n}": sorted(range(n, ROWS, 300), key=lambda v: v // 300 % 4) for n in range(300)}, (
        "pane by pane"
    )
    assert sum(held) == ROWS
    assert max(held) < ROWS // 10
    operator.close()


@pytest.mark.parametrize("cache", [None, "1GB", "40kB"])
def test_the_pieces_of_a_sliding_window_are_merged_in_steps(
    cache: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered = Work()

    class Index(KeyIndex):
        def locate(self, columns: Sequence[Any], records: int) -> Touched:
            numbered.note(records)
            return super().locate(columns, records)

    monkeypatch.setattr(memory_aggregates, "KeyIndex", Index)
    monkeypatch.setattr(memory_panes, "ROWS_A_STEP", 500)
    monkeypatch.setattr(memory_panes, "BYTES_A_STEP", 500)
    monkeypatch.setattr(memory_panes, "PROMOTED_ROWS", 500)
    monkeypatch.setattr(rocksdb_panes, "READ_ROWS", 500)
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], "k string, ts long"), uid="in").with_timestamps("ts")
    windowed = stream.key_by("k").window(cw.sliding("4s", "1s")).agg(n=cw.count())
    backend = Memory() if cache is None else cw.RocksDB(cache=cache, local_directories=[str(tmp_path)])
    operator, out = opened(windowed, backend), Collected()
    for second in range(4):
        for start in range(0, KEYS // 4, 1000):
            rows = [(f"k{n}", 1000 * second) for n in range(start, start + 1000)]
            operator.process(batch_of(rows, stream.schema, "test"), 1, out)
    for _ in operator.on_watermark(3_000, out):
        pass
    out.taken()
    numbered.taken()
    steps = [numbered.taken()[0] for _ in operator.on_watermark(4_000, out)]
    assert sum(steps) >= KEYS
    assert max(steps) <= 3 * 500
    assert sorted(row[0::3] for row in out.rows()) == sorted((f"k{n}", 4) for n in range(KEYS // 4))
    operator.close()


def freeze(operator: Operator, rows: int) -> None:
    for table in operator.snapshot(CheckpointId(1)).tables:  # type: ignore[union-attr]
        assert sum(batch.num_rows for batch in table.batches()) == rows
        table.release()
    operator.checkpoint_ended(CheckpointId(1), completed=False)
