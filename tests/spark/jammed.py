"""Jobs whose last step is far too slow for their sources, over two inputs and a broadcast one; and what their output must be."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

import cutwater as cw
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_store import JobStore
from tests.spark.workers import attempt_number, completed_checkpoints, wait_until

KEYS = 60
"""Each is in one split of a source, whatever parallelism from 1 to 6 the job began with."""
SCHEMA = "source string, value long, k long, n long"
SLOW_SECONDS = 0.001
RULES = 400
ROWS_BEFORE_TROUBLE = 200
EVERY_TROUBLE = {"upload.done", "snapshot.done", "open.done", "process.done", "close.done"}


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


class Troubled:
    """Fails in every attempt as ``troubles`` say of its number: in ``open``, ``process`` or ``close``; "" lives on."""

    def __init__(self, folder: Path, troubles: Sequence[str]) -> None:
        self.folder = str(folder)
        self.troubles = tuple(troubles)
        self._trouble = ""
        self._rows = 0

    def open(self, ctx: Any) -> None:
        if ctx.attempt <= len(self.troubles):
            self._trouble = self.troubles[ctx.attempt - 1]
        self._perhaps_fail("open")

    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        time.sleep(SLOW_SECONDS)
        self._rows += 1
        if self._rows > ROWS_BEFORE_TROUBLE:
            self._perhaps_fail("process")
        yield row

    def close(self) -> None:
        self._perhaps_fail("close")

    def _perhaps_fail(self, where: str) -> None:
        if self._trouble == where:
            (Path(self.folder) / f"{where}.done").touch()
            raise RuntimeError(f"failed on purpose: {where}")


class Slow(Troubled, cw.Process): ...


class SlowByRules(Troubled, cw.BroadcastProcess):
    latest = cw.BroadcastState("int", "long")

    def process_broadcast(self, row: Any, ctx: Any) -> None:
        before = self.latest.get(0, -1)
        assert row.value == before + 1, f"rule {row.value} came behind rule {before}"
        self.latest[0] = row.value


@dataclass(frozen=True)
class TroubledMemory:
    """A backend of which the next freeze fails, once, when the file ``snapshot`` is in the folder; and the next table cannot be
    written when ``upload`` is."""

    folder: str
    incremental: bool = False
    asynchronous: bool = True

    def open(self, uid: str, key_groups: Any, max_parallelism: int) -> "TroubledStore":
        return TroubledStore(cw.Memory().open(uid, key_groups, max_parallelism), Path(self.folder))


class TroubledStore:
    def __init__(self, store: Any, folder: Path) -> None:
        self._store = store
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def freeze(self, checkpoint: Any = None) -> list[Any]:
        if self._asked("snapshot"):
            raise RuntimeError("failed on purpose: snapshot")
        frozen = self._store.freeze(checkpoint)
        return [Unwritable(table) for table in frozen] if self._asked("upload") else list(frozen)

    def _asked(self, where: str) -> bool:
        return (self._folder / where).exists() and once(self._folder / f"{where}.done")


class Unwritable:
    def __init__(self, table: Any) -> None:
        self.name, self.schema, self.release = table.name, table.schema, table.release

    def batches(self) -> Iterator[Any]:
        raise OSError("failed on purpose: upload")


Trouble = tuple[Path, Sequence[str]]
"""Where to note it, and what fails in which attempt."""


def _numbers(env: cw.Environment, source: str, records: int, *, skewed: bool = False) -> cw.Stream:
    key = (
        pl.when(pl.col("value") % 10 == 0).then(pl.col("value") % KEYS).otherwise(0)
        if skewed
        else pl.col("value") % KEYS
    )
    columns = {"source": pl.lit(source), "value": pl.col("value"), "k": key, "n": pl.lit(0, pl.Int64)}
    return env.read(cw.sequence(records), uid=source).select(**columns)


def _slowly(numbered: cw.Stream, slow: Slow) -> cw.Stream:
    return numbered.uid("numbered").rebalance().process(slow, SCHEMA).uid("slow")


def _pipeline(env: cw.Environment, records: int, trouble: Trouble) -> cw.Stream:
    return _slowly(_numbers(env, "a", records).key_by("k").process(Numbered, SCHEMA), Slow(*trouble))


def _skewed(env: cw.Environment, records: int, trouble: Trouble) -> cw.Stream:
    return _slowly(_numbers(env, "a", records, skewed=True).key_by("k").process(Numbered, SCHEMA), Slow(*trouble))


def _union(env: cw.Environment, records: int, trouble: Trouble) -> cw.Stream:
    both = _numbers(env, "a", records // 2).union(_numbers(env, "b", records // 2).rebalance())
    return _slowly(both.key_by("k").process(Numbered, SCHEMA), Slow(*trouble))


def _both(env: cw.Environment, records: int) -> cw.Stream:
    left, right = (_numbers(env, source, records // 2).key_by("k") for source in "ab")
    return left.connect(right).process(NumberedBoth, SCHEMA)


def _multi_input(env: cw.Environment, records: int, trouble: Trouble) -> cw.Stream:
    return _slowly(_both(env, records), Slow(*trouble))


def _broadcast(env: cw.Environment, records: int, trouble: Trouble) -> cw.Stream:
    both = _both(env, records).uid("numbered")
    rules = env.read(cw.sequence(RULES, rate=RULES / 4), uid="rules", parallelism=1)
    return both.rebalance().connect(rules.broadcast()).process(SlowByRules(*trouble), SCHEMA).uid("slow")


JAMMED: Mapping[str, Callable[[cw.Environment, int, Trouble], cw.Stream]] = {
    "pipeline": _pipeline,
    "multi input": _multi_input,
    "union": _union,
    "broadcast": _broadcast,
    "skewed": _skewed,
}


def start(
    folder: Path,
    topology: str,
    parallelism: int,
    records: int,
    aligned_timeout: str | None = None,
    troubles: Sequence[str] = (),
) -> Any:
    """The job begins, or goes on from its latest checkpoint."""
    env = cw.Environment(
        parallelism=parallelism,
        checkpointing=cw.Checkpointing(
            "300ms", storage=f"file:{folder / 'checkpoints'}", unaligned=True, aligned_timeout=aligned_timeout
        ),
        restart=cw.fixed_delay(attempts=30, delay="10ms"),
        state_backend=TroubledMemory(str(folder)),
    )
    stream = JAMMED[topology](env, records, (folder, troubles))
    stream.write(cw.parquet_sink(folder / "out"), uid="out")
    return env.start("jammed")


def go_through_every_failure(
    folder: Path, topology: str, path: tuple[int, ...], records: int, aligned_timeout: str | None
) -> None:
    """State cannot be stored, then not even be frozen; the next attempt fails when it opens, one in a function, and the last,
    when all is done, in ``close``. Where ``path`` has two parallelisms it goes on at the second one in between."""
    troubles = ("", "open", "process", "close") if len(path) == 1 else ("", "open", "", "process", "close")
    job = start(folder, topology, path[0], records, aligned_timeout, troubles)
    wait_until(lambda: overtaken_bytes(folder) > 0, "a checkpoint that overtook rows")
    (folder / "upload").touch()
    wait_until(lambda: any(_is_of_purpose(each) for each in job.checkpoints()), "a checkpoint that could not be stored")
    assert attempt_number(job) == 1, "and that is all that happened"
    wait_until(lambda: overtaken_bytes(folder) > 0, "a checkpoint that overtook rows")
    (folder / "snapshot").touch()
    if len(path) > 1:
        wait_until(lambda: attempt_number(job) == 3, "it goes on behind the first failures")
        taken = completed_checkpoints(job)
        wait_until(lambda: completed_checkpoints(job) > taken, "and is checkpointed")
        cancel_with_rows_in_flight(job, folder)
        job = start(folder, topology, path[-1], records, aligned_timeout, troubles)
    result = job.wait("600s")
    assert (result.status, result.attempts) == ("finished", 5 if len(path) == 1 else 3), job.log
    assert {each.name for each in folder.glob("*.done")} == EVERY_TROUBLE, job.log
    judge(folder, topology, records, began_with=path[0])


def _is_of_purpose(info: Any) -> bool:
    return "failed on purpose: upload" in (info.failure_reason or "")


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
