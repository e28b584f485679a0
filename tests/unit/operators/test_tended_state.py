"""State is tended while no keyed record comes: what checkpoints leave of it in memory does not pile up."""

from collections.abc import Iterator
from typing import Any

import pytest

import cutwater as cw
from cutwater.flow.ids import CheckpointId
from cutwater.operators.keyed_process import TIMERS_A_STEP
from cutwater.rows import batch_of
from cutwater.state.backend import StateBackend
from tests.unit.operators.collecting import Collected, after, opened

BACKENDS = {
    "memory": cw.Memory(),
    "incremental memory": cw.Memory(incremental=True),
    "rocksdb": cw.RocksDB(),
    "incremental rocksdb": cw.RocksDB(incremental=True),
}
CHECKPOINTS = 50
FEW_LAYERS = 4


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> StateBackend:
    return BACKENDS[request.param]


class Subject:
    """The operator of a stream, on its own, with a clock that the test sets."""

    def __init__(self, stream: cw.Stream, backend: StateBackend) -> None:
        self.out = Collected()
        self.now = 0
        self.operator: Any = opened(stream, backend, lambda: self.now)

    def feed(self, stream: cw.Stream, *rows: Any, port: int = 0) -> None:
        self.operator.process(batch_of(rows, stream.schema, "test"), port, self.out)

    def clock(self, now: int) -> list[tuple[Any, ...]]:
        self.now = now
        after(self.operator.on_processing_time(now, self.out))
        return self.out.taken()

    def watermark(self, time: int) -> list[tuple[Any, ...]]:
        after(self.operator.on_watermark(time, self.out))
        return self.out.taken()

    def checkpoint(self, number: int) -> None:
        for table in self.operator.snapshot(CheckpointId(number)).tables:
            list(table.batches())
            table.release()
        self.operator.checkpoint_ended(CheckpointId(number), completed=True)

    def layers(self) -> int:
        """Of the table that has the most."""
        return max(len(table._below) + len(getattr(table, "_unneeded", ())) for table in self._tables())

    def kept(self) -> list[Any]:
        return [item for table in self._tables() for item in table.items()]

    def _tables(self) -> Iterator[Any]:
        return iter(self.operator.store._tables.values())


def read(schema: str) -> cw.Stream:
    return cw.Environment(checkpointing=None).read(cw.from_rows([], schema), uid="in")


class EverySecond(cw.KeyedProcess):
    times = cw.ValueState("long")

    def process(self, row: Any, ctx: Any) -> Any:
        ctx.timers.processing_time(1000)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        self.times.value = (self.times.value or 0) + 1
        ctx.timers.processing_time(timestamp + 1000)
        yield (self.times.value,)


@pytest.mark.parametrize("keys", [1, TIMERS_A_STEP])
def test_layers_stay_few_while_only_timers_fire(keys: int, backend: StateBackend) -> None:
    stream = read("k long")
    subject = Subject(stream.key_by("k").process(EverySecond, "n long"), backend)
    subject.feed(stream, *[(key,) for key in range(keys)])
    for number in range(1, CHECKPOINTS + 1):
        assert subject.clock(1000 * number) == [(number,)] * keys
        subject.checkpoint(number)
        assert subject.layers() <= FEW_LAYERS
    subject.operator.close()


def test_layers_stay_few_while_sessions_end_one_by_one(backend: StateBackend) -> None:
    stream = read("k long, ts long").with_timestamps("ts")
    windowed = stream.key_by("k").window(cw.session("1s")).reduce(lambda a, b: a)
    subject = Subject(windowed, backend)
    subject.feed(stream, *[(number, 10_000 * number) for number in range(1, CHECKPOINTS + 1)])
    for number in range(1, CHECKPOINTS + 1):
        assert len(subject.watermark(10_000 * number + 5_000)) == 1
        subject.checkpoint(number)
        assert subject.layers() <= FEW_LAYERS
    subject.operator.close()


class Remember(cw.BroadcastProcess):
    last = cw.ValueState("long", ttl="10s")

    def process(self, row: Any, ctx: Any) -> Any:
        self.last.value = row.k

    def process_broadcast(self, row: Any, ctx: Any) -> Any:
        return None


def test_what_expired_goes_while_only_broadcast_records_come(backend: StateBackend) -> None:
    env = cw.Environment(checkpointing=None)
    stream = env.read(cw.from_rows([], "k long"), uid="in")
    rules = env.read(cw.from_rows([], "rule string"), uid="rules")
    subject = Subject(stream.key_by("k").connect(rules.broadcast()).process(Remember, "n long"), backend)
    subject.feed(stream, (1,), (2,))
    subject.now = 5_000
    subject.feed(rules, ("a",), port=1)
    assert len(subject.kept()) == 2
    subject.now = 20_000
    subject.feed(rules, ("b",), port=1)
    assert subject.kept() == []
    subject.operator.close()
