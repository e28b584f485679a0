"""Jobs whose last step is far too slow for their sources, over two inputs and a broadcast one; and what their output must be."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

import cutwater as cw
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_store import JobStore
from tests.spark.workers import wait_until

KEYS = 60
"""Each is in one split of a source, whatever parallelism from 1 to 6 the job began with."""
SCHEMA = "source string, value long, k long, n long"
SLOW_SECONDS = 0.001
RULES = 400


def once(marker: Path) -> bool:
    """Whether nobody has asked before, in whatever process and attempt."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Numbered(cw.KeyedProcess):
    """The records of each key: one that is lost, repeated or overtaken leaves a trace in every later one."""

    seen = cw.ValueState("long")

    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        self.seen.value = (self.seen.value or 0) + 1
        yield row.source, row.value, row.k, self.seen.value


class NumberedBoth(cw.CoProcess):
    seen = cw.ValueState("long")

    def process_left(self, row: Any, ctx: Any) -> Iterator[Any]:
        self.seen.value = (self.seen.value or 0) + 1
        yield row.source, row.value, row.k, self.seen.value

    process_right = process_left


class Slow(cw.Process):
    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        time.sleep(SLOW_SECONDS)
        yield row


class SlowByRules(cw.BroadcastProcess):
    """Fails once in each way that the test has prepared: there is a file for it in ``folder``."""

    latest = cw.BroadcastState("int", "long")

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._at_the_end = False

    def open(self, ctx: Any) -> None:
        if ctx.attempt > 1:
            self._fail_if_asked("open")

    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        time.sleep(SLOW_SECONDS)
        self._fail_if_asked("process")
        self._at_the_end = self.latest.get(0) == RULES - 1
        yield row

    def process_broadcast(self, row: Any, ctx: Any) -> None:
        before = self.latest.get(0, -1)
        assert row.value == before + 1, f"rule {row.value} came behind rule {before}"
        self.latest[0] = row.value
        self._at_the_end = row.value == RULES - 1

    def close(self) -> None:
        if self._at_the_end:
            self._fail_if_asked("close")

    def _fail_if_asked(self, where: str) -> None:
        asked = Path(self.folder) / where
        if asked.exists() and once(asked.with_suffix(".done")):
            raise RuntimeError(f"failed on purpose: {where}")


def _numbers(env: cw.Environment, source: str, records: int, *, skewed: bool = False) -> cw.Stream:
    key = (
        pl.when(pl.col("value") % 10 == 0).then(pl.col("value") % KEYS).otherwise(0)
        if skewed
        else pl.col("value") % KEYS
    )
    columns = {"source": pl.lit(source), "value": pl.col("value"), "k": key, "n": pl.lit(0, pl.Int64)}
    return env.read(cw.sequence(records), uid=source).select(**columns)


def _pipeline(env: cw.Environment, records: int, folder: Path) -> cw.Stream:
    return (
        _numbers(env, "a", records)
        .key_by("k")
        .process(Numbered, SCHEMA)
        .uid("numbered")
        .rebalance()
        .process(Slow, SCHEMA)
        .uid("slow")
    )


def _skewed(env: cw.Environment, records: int, folder: Path) -> cw.Stream:
    keyed = _numbers(env, "a", records, skewed=True).key_by("k")
    return keyed.process(Numbered, SCHEMA).uid("numbered").rebalance().process(Slow, SCHEMA).uid("slow")


def _union(env: cw.Environment, records: int, folder: Path) -> cw.Stream:
    both = _numbers(env, "a", records // 2).union(_numbers(env, "b", records // 2).rebalance())
    return both.key_by("k").process(Numbered, SCHEMA).uid("numbered").rebalance().process(Slow, SCHEMA).uid("slow")


def _multi_input(env: cw.Environment, records: int, folder: Path) -> cw.Stream:
    left, right = (_numbers(env, source, records // 2).key_by("k") for source in "ab")
    both = left.connect(right).process(NumberedBoth, SCHEMA).uid("numbered")
    return both.rebalance().process(Slow, SCHEMA).uid("slow")


def _broadcast(env: cw.Environment, records: int, folder: Path) -> cw.Stream:
    left, right = (_numbers(env, source, records // 2).key_by("k") for source in "ab")
    both = left.connect(right).process(NumberedBoth, SCHEMA).uid("numbered")
    rules = env.read(cw.sequence(RULES, rate=RULES / 4), uid="rules", parallelism=1)
    return both.rebalance().connect(rules.broadcast()).process(SlowByRules(str(folder)), SCHEMA).uid("slow")


JAMMED: Mapping[str, Callable[[cw.Environment, int, Path], cw.Stream]] = {
    "pipeline": _pipeline,
    "multi input": _multi_input,
    "union": _union,
    "broadcast": _broadcast,
    "skewed": _skewed,
}


def start(folder: Path, topology: str, parallelism: int, records: int, aligned_timeout: str | None = None) -> Any:
    """The job begins, or goes on from its latest checkpoint."""
    env = cw.Environment(
        parallelism=parallelism,
        checkpointing=cw.Checkpointing(
            "300ms", storage=f"file:{folder / 'checkpoints'}", unaligned=True, aligned_timeout=aligned_timeout
        ),
        restart=cw.fixed_delay(attempts=30, delay="10ms"),
    )
    stream = JAMMED[topology](env, records, folder)
    stream.write(cw.parquet_sink(folder / "out"), uid="out")
    return env.start("jammed")


def overtaken_bytes(folder: Path) -> int:
    """In the latest checkpoint of the job."""
    completed = JobStore(FileStorage(str(folder / "checkpoints")), "jammed").completed()
    return sum(record.snapshot.in_flight_bytes for record in completed[-1].subtasks) if completed else 0


def cancel_with_rows_in_flight(job: Any, folder: Path) -> None:
    """Whatever is restored next begins with rows to replay."""
    wait_until(lambda: overtaken_bytes(folder) > 0, "a checkpoint that overtook rows")
    job.cancel()
    assert overtaken_bytes(folder) > 0


def judge(folder: Path, topology: str, records: int, began_with: int) -> None:
    """0 lost, 0 doubled, 0 out of order for a key."""
    rows = pl.read_parquet(str(folder / "out" / "**" / "*.parquet"))
    sources = ("a",) if topology in ("pipeline", "skewed") else ("a", "b")
    each = records // len(sources)
    assert rows.height == len(sources) * each, f"{rows.height} rows"
    for source in sources:
        values = rows.filter(pl.col("source") == source)["value"]
        assert values.sort().to_list() == list(range(each)), f"{source}: lost or doubled"
    for key, numbers in rows.group_by("k").agg(pl.col("n").sort()).rows():
        assert numbers == list(range(1, len(numbers) + 1)), f"key {key} was numbered {numbers[:50]}"
    in_order = rows.sort("n").with_columns(split=pl.col("value") % began_with).group_by("source", "split", "k")
    for path, values in in_order.agg(pl.col("value")).select(pl.struct("source", "split", "k"), "value").rows():
        assert values == sorted(values), f"{path} came in another order"
