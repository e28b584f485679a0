"""Ten million keys of a hundred bytes: what an increment costs, how short a cut is, how long a restore takes, and state that is
many times the memory of those who keep it."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cutwater as cw
from bench.stalls import StallWatch
from cutwater.checkpoint.statistics import CheckpointInfo
from tests.restoring import (
    Aggregates,
    ExpiringMaps,
    ExpiringStates,
    Kept,
    Panes,
    RowStates,
    Sessions,
    TimedStates,
    WindowContents,
    took,
)
from tests.spark.footprint import MIB, private_bytes
from tests.spark.workers import wait_until, worker_pids

pytestmark = pytest.mark.timeout(3600)

KEYS = 10_000_000
ONE_IN = 100
"""Once all keys were seen, records come to one key in so many."""
PRIME = 2654435761
TEXT = 80
HASH_DIGITS = 20
TAKEN = 5
SUBTASKS = 2
RATE = 100_000
"""Records a second: less than could be taken, once all keys were seen. Where subtasks want more cores than there are, each waits
for the others, whether or not a checkpoint is taken."""
ROW_RATE = 50_000
"""The same for a function that gets row by row."""
STALLED = 0.05
"""A core that stood still for so long tells nothing about a loop that may for twice as long."""
ATTEMPTS = 3
"""A machine that is busy with others, or has to find the memory first, decides nothing: then it is asked once more."""


class Totals(cw.KeyedProcess):
    """What ``agg`` keeps, by a function for each row: an object for each key."""

    total = cw.ValueState("struct<n: long, m: string>")

    def process(self, row: Any, ctx: Any) -> Any:
        before = self.total.value
        n, m = (0, "") if before is None else before
        self.total.value = (n + 1, max(m, row.m))
        return ()


def aggregated(texts: cw.KeyedStream) -> cw.Stream:
    return texts.agg(n=cw.count(), m=cw.max("m"))


def row_by_row(texts: cw.KeyedStream) -> cw.Stream:
    return texts.process(Totals, "k long")


def wide_totals(
    folder: Path,
    backend: cw.StateBackend,
    keys: int,
    one_in: int,
    kept: Callable[[cw.KeyedStream], cw.Stream] = aggregated,
    rate: int = RATE,
) -> cw.Environment:
    """A count and a text of 80 letters for each key. Checkpoints are asked for."""
    env = cw.Environment(
        parallelism=SUBTASKS,
        checkpointing=cw.Checkpointing("1h", storage=f"file:{folder / 'checkpoints'}", timeout="10 min"),
        state_backend=backend,
        restart=cw.no_restart(),
    )
    value = pl.col("value")
    key = pl.when(value < keys).then(value * PRIME % keys).otherwise(value * PRIME % keys // one_in * one_in)
    # Digits that no compression finds anything alike in.
    text = pl.concat_str(
        *(value.hash(seed).cast(pl.String).str.zfill(HASH_DIGITS) for seed in range(TEXT // HASH_DIGITS))
    )
    texts = env.read(cw.sequence(None, rate=rate), uid="numbers").select(k=key, m=text)
    kept(texts.key_by("k")).uid("totals").write(cw.discard(), uid="dropped")
    return env


def records_in(info: CheckpointInfo) -> int:
    return sum(part.records_in for part in info.subtasks if "totals" in part.vertex)


def wait_for_keys(job: cw.Job, keys: int) -> None:
    """Combining before the exchange makes fewer records of them, never more: all keys came when as many records did."""
    wait_until(lambda: records_in(job.trigger_checkpoint()) >= keys, "all keys", seconds=900)


def wait_until_settled(job: cw.Job) -> None:
    """All that filling left to RocksDB to be joined is stored: three checkpoints in a row store about as much."""
    stored: list[int] = []

    def settled() -> bool:
        stored.append(job.trigger_checkpoint().written_bytes)
        return len(stored) > 2 and max(stored[-3:]) < 1.5 * min(stored[-3:])

    wait_until(settled, "checkpoints that store about as much", seconds=600)


@dataclass(frozen=True)
class Measured:
    """Of some checkpoints: the median time, and of all else the most that any subtask had in any of them. Bases among increments
    count only for how long the loop stands still."""

    stored: int
    seconds: float
    sync: float
    gap: float

    @classmethod
    def of(cls, taken: list[CheckpointInfo], bases: list[CheckpointInfo]) -> "Measured":
        stored, taken = taken, taken + bases
        return cls(
            stored=max(info.written_bytes for info in stored),
            seconds=statistics.median(info.duration for info in stored),
            sync=max(part.sync_duration for info in taken for part in info.subtasks),
            gap=max(part.longest_gap for info in taken for part in info.subtasks),
        )

    @property
    def leaves_the_loop_alone(self) -> bool:
        return self.sync < 0.010 and self.gap < 0.100


def is_base(info: CheckpointInfo) -> bool:
    """A chain of increments begins anew now and then: such a one stores much that did not change."""
    return info.written_bytes > 0.15 * info.state_bytes


def checkpoints_of(job: cw.Job, keys: int, *, increments: bool) -> Measured:
    """Of those during which the machine did not stand still."""
    wait_for_keys(job, keys)
    taken: list[CheckpointInfo] = []
    bases: list[CheckpointInfo] = []
    with StallWatch() as watch:
        # What a checkpoint tells of the loop was since the cut before, while that one was stored among it: the machine has to
        # be watched from before the last cut that does not count.
        wait_until_settled(job)
        asked, stalled = 0, watch.take()
        while len(taken) < TAKEN:
            assert asked < ATTEMPTS * TAKEN, f"the machine stands still too often: only {len(taken)} of {asked} count"
            time.sleep(2)
            info = job.trigger_checkpoint()
            asked, before, stalled = asked + 1, stalled, watch.take()
            gaps = ", ".join(f"{part.vertex}[{part.index}] {1e3 * part.longest_gap:.0f}" for part in info.subtasks)
            print(f"{info.duration:.2f} s, gaps in ms {gaps}, machine {1e3 * stalled:.0f} ms", flush=True)
            if max(before, stalled) < STALLED:
                (bases if increments and is_base(info) else taken).append(info)
    assert len(bases) <= len(taken), "a chain of increments is longer than that"
    return Measured.of(taken, bases)


def seconds_to_first_checkpoint(env: cw.Environment, name: str) -> tuple[float, int]:
    """And how many bytes it has."""
    began = time.monotonic()
    job = env.start(name)
    info = job.trigger_checkpoint()
    seconds = time.monotonic() - began
    job.cancel()
    return seconds, info.state_bytes


@pytest.mark.parametrize(
    ("full", "incremental"),
    [
        pytest.param(cw.Memory(), cw.Memory(incremental=True), id="memory"),
        pytest.param(cw.RocksDB(), cw.RocksDB(incremental=True), id="rocksdb"),
    ],
)
def test_an_increment_of_one_percent_is_small_and_quick_and_a_restore_is_no_slower_than_writing(
    tmp_path: Path, full: cw.StateBackend, incremental: cw.StateBackend
) -> None:
    job = wide_totals(tmp_path / "full", full, KEYS, ONE_IN).start("full")
    whole = checkpoints_of(job, KEYS, increments=False)
    job.cancel()
    job = wide_totals(tmp_path / "increments", incremental, KEYS, ONE_IN).start("increments")
    increment = checkpoints_of(job, KEYS, increments=True)
    job.cancel()
    to_start, _ = seconds_to_first_checkpoint(wide_totals(tmp_path / "empty", incremental, KEYS, ONE_IN), "empty")
    for _ in range(ATTEMPTS):
        increments = wide_totals(tmp_path / "increments", incremental, KEYS, ONE_IN)
        seconds, restored_bytes = seconds_to_first_checkpoint(increments, "increments")
        restored = seconds - to_start
        if restored <= whole.seconds:
            break
    print(f"{full}: whole {whole}, increment {increment}, restored in {restored:.1f} s")
    assert restored_bytes >= KEYS * TEXT
    assert increment.stored < 0.05 * whole.stored
    assert increment.seconds < 0.2 * whole.seconds
    assert restored <= whole.seconds
    assert whole.leaves_the_loop_alone
    assert increment.leaves_the_loop_alone


@pytest.mark.parametrize("keys", [1_000_000, KEYS], ids=["million", "ten-million"])
@pytest.mark.parametrize("backend", [cw.Memory(), cw.RocksDB()], ids=["memory", "rocksdb"])
def test_no_checkpoint_of_a_function_for_each_row_makes_the_loop_stand_still(
    tmp_path: Path, backend: cw.StateBackend, keys: int
) -> None:
    job = wide_totals(tmp_path, backend, keys, one_in=1, kept=row_by_row, rate=ROW_RATE).start("rows")
    measured = checkpoints_of(job, keys, increments=False)
    job.cancel()
    print(f"{backend}, {keys:,} keys: {measured}")
    assert measured.leaves_the_loop_alone


BACKENDS: dict[str, cw.StateBackend] = {
    "memory": cw.Memory(),
    "memory-incremental": cw.Memory(incremental=True),
    "rocksdb": cw.RocksDB(),
    "rocksdb-incremental": cw.RocksDB(incremental=True),
}
LATER_THAN_WRITTEN: dict[str, tuple[type[Kept], ...]] = {
    "rocksdb": (Panes,),
    "rocksdb-incremental": (TimedStates, Sessions, WindowContents),
}
"""See docs/state-backends.md."""
KEPT = [
    pytest.param(backend, kind, kind in LATER_THAN_WRITTEN.get(name, ()), id=f"{name}-{kind.__name__}")
    for name, backend in BACKENDS.items()
    for kind in (Aggregates, Panes, RowStates, ExpiringStates, ExpiringMaps, TimedStates, Sessions, WindowContents)
]


@pytest.mark.parametrize(("backend", "kind", "later"), KEPT)
def test_ten_million_keys_are_cut_at_once_and_there_again_no_later_than_they_took_to_be_stored(
    tmp_path: Path, backend: cw.StateBackend, kind: type[Kept], *, later: bool
) -> None:
    """Where the checkpoint only has to store what was written before: than they took to be written and stored."""
    for attempt in range(ATTEMPTS):
        times = took(backend, kind, KEYS, tmp_path / str(attempt))
        most = times.filled if later else times.written
        if times.restored <= most and times.cut < 0.010:
            break
    assert times.restored <= most
    assert times.cut < 0.010


def test_state_of_four_times_the_memory_of_its_keepers(tmp_path: Path) -> None:
    keys = 40_000_000
    small = cw.RocksDB(incremental=True, cache="16MB", write_buffer="16MB", block_cache="16MB")
    job = wide_totals(tmp_path, small, keys, one_in=1).start("larger-than-memory")
    most = 0

    def grown() -> bool:
        nonlocal most
        info = job.trigger_checkpoint()
        keepers = {info.index for info in info.subtasks if "totals" in info.vertex}
        pids = worker_pids(job)
        most = max(most, *(private_bytes(pids[f"totals[{index}]"]) for index in keepers))
        return records_in(info) >= 2 * keys

    wait_until(grown, "every key twice", seconds=3000)
    job.cancel()
    kept = keys * (TEXT + 2 * 8) // 2
    print(f"{kept / MIB:.0f} MiB of state in each subtask, at most {most / MIB:.0f} MiB of memory")
    assert kept >= 4 * most
