"""State that is not in memory is read at once for all keys of a batch, or of a step, not key by key."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import cutwater as cw
from cutwater.flow.watermarks import MAX_WATERMARK
from cutwater.operators.soonest import KEYS_AHEAD
from cutwater.rows import batch_of
from cutwater.state.handles import KEYS_AT_ONCE, SWEEP_STEP
from cutwater.state.rocksdb_family import Family
from tests.unit.operators.collecting import Collected, after, opened

KEYS = 2000
SMALL = "100kB"


class Total(cw.AggregateFunction):
    accumulator_type = "long"
    result_type = "long"

    def create(self) -> Any:
        return 0

    def add(self, accumulator: Any, row: Any) -> Any:
        return accumulator + row.v

    def merge(self, a: Any, b: Any) -> Any:
        return a + b

    def result(self, accumulator: Any) -> Any:
        return accumulator


KEPT_BY: dict[str, Callable[[cw.KeyedStream], cw.Stream]] = {
    "agg": lambda keyed: keyed.agg(v=Total()),
    "window": lambda keyed: keyed.window(cw.tumbling("10ms")).agg(v=Total()),
    "session": lambda keyed: keyed.window(cw.session("10ms")).agg(v=Total()),
}


class Remembered(cw.KeyedProcess):
    last = cw.ValueState("string")

    def process(self, row: Any, ctx: Any) -> Any:
        self.last.value = row.k
        ctx.timers.event_time(10)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield (self.last.value,)
        self.last.clear()


class Expiring(cw.KeyedProcess):
    one = cw.ValueState("string", ttl="10s")
    several = cw.ListState("long", ttl="10s")

    def process(self, row: Any, ctx: Any) -> Any:
        self.one.value = row.k
        self.several.extend(range(row.v))


class ExpiringLists(cw.KeyedProcess):
    several = cw.ListState("long", ttl="10s")

    def process(self, row: Any, ctx: Any) -> Any:
        self.several.extend(range(row.v))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many keys each read of RocksDB was for."""
    reads: list[int] = []
    read = Family.get

    def counted(family: Family, keys: list[bytes]) -> list[bytes | None]:
        reads.append(len(keys))
        return read(family, keys)

    monkeypatch.setattr(Family, "get", counted)
    return reads


class Subject:
    """The operator of a stream on a RocksDB whose cache holds few of its keys, with a clock that the test sets."""

    def __init__(self, made: Callable[[cw.KeyedStream], cw.Stream], folder: Path) -> None:
        self.stream = cw.Environment(checkpointing=None).read(cw.from_rows([], "k string, ts long, v long"), uid="in")
        keyed = self.stream.with_timestamps("ts").key_by("k")
        backend = cw.RocksDB(cache=SMALL, local_directories=[str(folder)])
        self.now = 0
        self.operator: Any = opened(made(keyed), backend, lambda: self.now)
        self.out = Collected()

    def feed(self, value: int, keys: range = range(KEYS)) -> None:
        rows = [(f"k{n}", 5, value) for n in keys]
        self.operator.process(batch_of(rows, self.stream.schema, "test"), 0, self.out)


@pytest.mark.parametrize("how", KEPT_BY)
def test_what_is_kept_under_the_keys_of_a_batch_is_read_at_once(how: str, tmp_path: Path, reads: list[int]) -> None:
    subject = Subject(KEPT_BY[how], tmp_path)
    for value in (1, 10):
        reads.clear()
        subject.feed(value)
    assert len(reads) == 1 and reads[0] > KEYS // 2
    if how == "window":
        reads.clear()
        after(subject.operator.on_watermark(20, subject.out))
        assert len(reads) <= 4, "in two steps told, and in two forgotten"
    subject.operator.close()


@pytest.mark.parametrize("how", [lambda w: w.agg(v=Total()), lambda w: w.reduce(lambda a, b: a)], ids=["own", "reduce"])
def test_a_window_that_is_told_or_forgotten_costs_nothing_of_the_others_of_its_keys(
    how: Callable[[Any], cw.Stream], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    written: list[int] = []
    get, write = Family.get, Family.write

    def counted_get(family: Family, keys: list[bytes]) -> list[bytes | None]:
        found = get(family, keys)
        read.extend(len(value) for value in found if value is not None)
        return found

    def counted_write(family: Family, keys: Sequence[bytes], values: Sequence[bytes], deleted: Any = ()) -> None:
        written.extend(map(len, values))
        write(family, keys, values, deleted)

    subject = Subject(lambda keyed: how(keyed.window(cw.tumbling("10ms"), allowed_lateness="10s")), tmp_path)
    schema = subject.stream.schema
    keys, kept, entry = 100, 40, 64
    for window in range(kept):
        rows = [(f"k{n}", 10 * window, 1) for n in range(keys)]
        subject.operator.process(batch_of(rows, schema, "test"), 0, subject.out)
    after(subject.operator.on_watermark(10 * kept - 11, subject.out))
    subject.operator.snapshot(1)
    for _ in range(20):
        # What was put before is written.
        subject.operator.process(batch_of([("other", 10 * kept + 10, 1)], schema, "test"), 0, subject.out)
    subject.out.taken()
    monkeypatch.setattr(Family, "get", counted_get)
    monkeypatch.setattr(Family, "write", counted_write)
    after(subject.operator.on_watermark(10 * kept - 1, subject.out))
    assert len(subject.out.taken()) == keys
    after(subject.operator.on_watermark(10_009, subject.out))
    subject.operator.snapshot(2)
    subject.feed(1, range(0))
    assert 0 < sum(read) <= keys * entry
    assert sum(written) <= keys * entry
    subject.operator.close()


@pytest.mark.parametrize("lateness", ["0s", "5ms"])
def test_sessions_that_are_due_are_read_at_once(lateness: str, tmp_path: Path, reads: list[int]) -> None:
    session = cw.session("10ms")
    subject = Subject(lambda keyed: keyed.window(session, allowed_lateness=lateness).agg(v=Total()), tmp_path)
    subject.feed(1)
    subject.out.taken()
    reads.clear()
    after(subject.operator.on_watermark(100, subject.out))
    assert len(subject.out.taken()) == KEYS
    assert sum(reads) > KEYS // 2 and len(reads) <= 2 * (KEYS // KEYS_AHEAD + 2)
    subject.operator.close()


@pytest.mark.parametrize("watermark", [100, MAX_WATERMARK])
def test_timers_that_are_due_and_the_state_of_their_keys_are_read_at_once(
    watermark: int, tmp_path: Path, reads: list[int]
) -> None:
    subject = Subject(lambda keyed: keyed.process(Remembered(), "k string"), tmp_path)
    subject.feed(1)
    reads.clear()
    after(subject.operator.on_watermark(watermark, subject.out))
    assert subject.out.taken() == [(f"k{n}",) for n in range(KEYS)]
    assert sum(reads) > KEYS and len(reads) <= 2 * (KEYS // KEYS_AHEAD + 1), "timers, and the value beside them"
    subject.operator.close()


def test_what_has_expired_is_read_at_once_and_a_bounded_part_of_it(tmp_path: Path, reads: list[int]) -> None:
    subject = Subject(lambda keyed: keyed.process(Expiring(), "k string"), tmp_path)
    subject.feed(3)
    subject.now = 20_000
    reads.clear()
    subject.feed(0, range(KEYS, KEYS + 1))
    assert 0 < sum(reads) <= 2 * (SWEEP_STEP + KEYS_AT_ONCE)
    assert len(reads) <= 2 * (SWEEP_STEP // KEYS_AT_ONCE + 2)
    for _ in range(8):
        subject.feed(0, range(KEYS, KEYS + 1))
    assert {name: len(list(table.items())) for name, table in subject.operator.store._tables.items()} == {
        "one": 1,
        "several": 0,
    }
    subject.operator.close()


def test_of_keys_with_many_values_few_are_read_at_once(tmp_path: Path, reads: list[int]) -> None:
    subject = Subject(lambda keyed: keyed.process(ExpiringLists(), "k string"), tmp_path)
    keys, values = 400, SWEEP_STEP // 4
    subject.feed(values, range(keys))
    subject.now = 20_000
    subject.feed(0, range(1))
    for _ in range(4):
        reads.clear()
        subject.feed(0, range(1))
        assert 1 < max(reads) <= 8
    subject.operator.close()
