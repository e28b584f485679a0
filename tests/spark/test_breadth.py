"""Every verb, source and sink of the public contract, on Spark, in a few jobs whose results are computed a second way."""

import json
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import cutwater as cw
from tests.spark.workers import DEADLINE_SECONDS, completed_checkpoints, wait_until


def checkpoints_in(folder: Path, interval: str = "200ms", **more: Any) -> cw.Checkpointing:
    return cw.Checkpointing(interval=interval, storage=f"file:{folder / 'checkpoints'}", **more)


class Ledger(cw.TwoPhaseCommitSink):
    """A two-phase sink of our own: a committed transaction is a file named by the transaction."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, ctx: Any) -> None:
        self.where = (ctx.job, ctx.uid, ctx.subtask, ctx.parallelism)
        self.folder.mkdir(exist_ok=True)

    def begin(self, name: str) -> dict[str, Any]:
        return {"name": name, "rows": []}

    def write(self, txn: dict[str, Any], batch: pa.RecordBatch) -> None:
        txn["rows"] += batch.to_pylist()

    def prepare(self, txn: dict[str, Any]) -> dict[str, Any] | None:
        return txn if txn["rows"] else None

    def commit(self, committable: dict[str, Any]) -> None:
        (self.folder / f"{committable['name']}.json").write_text(json.dumps(committable["rows"]))

    def abort(self, committable: dict[str, Any]) -> None:
        (self.folder / f"{committable['name']}.json").unlink(missing_ok=True)

    def rows(self) -> list[dict[str, Any]]:
        return [row for file in self.folder.glob("*.json") for row in json.loads(file.read_text())]


class Countdown(cw.Source):
    """A source of our own: split ``s`` counts from its start down to 1."""

    schema = "n long, k long"

    def __init__(self, told: Path) -> None:
        self.told = told

    def splits(self) -> list[int]:
        return [300, 200, 100]

    def open(self, split: int, position: int | None, ctx: Any) -> "CountdownReader":
        return CountdownReader(split if position is None else position, self.told / str(split))


class CountdownReader(cw.SplitReader):
    def __init__(self, left: int, told: Path) -> None:
        self.left = left
        self.told = told

    def next_batch(self, max_rows: int, timeout: timedelta) -> Any:
        if not self.left:
            return cw.END
        taken = range(self.left, max(0, self.left - min(max_rows, 40)), -1)
        self.left = taken[-1] - 1
        return pa.RecordBatch.from_pydict({"n": list(taken), "k": [n % 7 for n in taken]})

    def position(self) -> int:
        return self.left

    def checkpoint_completed(self, checkpoint_id: int, position: int) -> None:
        with self.told.open("a") as told:
            told.write(f"{checkpoint_id} {position}\n")

    def close(self) -> None:
        with self.told.open("a") as told:
            told.write("closed\n")


class Visits(cw.KeyedProcess):
    """Uses each kind of state, a side output and a counter; breaks down once, in the first attempt."""

    seen = cw.ValueState("long")
    last = cw.ListState("long")
    by_parity = cw.MapState("boolean", "long")
    milestones = cw.SideOutput("milestones", "k long, visits long")

    def __init__(self, breaks_at: int | None) -> None:
        self.breaks_at = breaks_at

    def open(self, ctx: Any) -> None:
        self.attempt = ctx.attempt
        self.visits = ctx.metrics.counter("visits")

    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        if row.n == self.breaks_at and ctx.attempt == 1:
            raise RuntimeError("the first attempt breaks down here")
        self.visits.add()
        self.seen.value = (self.seen.value or 0) + 1
        self.last.append(row.n)
        if len(self.last) > 3:
            kept = list(self.last)[-3:]
            self.last.clear()
            self.last.extend(kept)
        odd = row.n % 2 == 1
        self.by_parity[odd] = self.by_parity.get(odd, 0) + 1
        if self.seen.value % 100 == 0:
            ctx.emit(self.milestones, (ctx.key, self.seen.value))
        yield {"k": ctx.key, "visits": self.seen.value, "odd": self.by_parity.get(True, 0), "kept": len(self.last)}


class Tally(cw.Process):
    """Without keys: passes rows on and puts every tenth one aside."""

    tenth = cw.SideOutput("tenth", "n long")

    def process(self, row: Any, ctx: Any) -> list[Any]:
        if row.n % 10 == 0:
            ctx.emit(self.tenth, {"n": row.n})
        return [row]


PAIR = "n long, k long"
EXTRA = [(10_001, 1), (10_002, 2), (10_003, 3)]


def expected_pairs(count: int) -> list[tuple[int, int]]:
    """What the chain of row and column verbs below does, in plain Python."""
    pairs = [(n, n % 7) for n in range(count)]
    pairs = [pair for n, k in pairs for pair in ([(n, k)] * 2 if n % 2 == 0 else [(n, k)])]
    pairs = [(n, k) for n, k in pairs if n % 3 != 0 and n < count - 100 and k != 5]
    countdown = [(n, n % 7) for split in (300, 200, 100) for n in range(1, split + 1)]
    return [*pairs, *EXTRA, *countdown]


def test_every_verb_gives_what_plain_python_gives_over_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count = 4000
    env = cw.Environment(
        parallelism=2, checkpointing=checkpoints_in(tmp_path), restart=cw.fixed_delay(attempts=2, delay="10ms")
    )
    numbers = (
        env.read(cw.sequence(count, rate=4000), uid="numbers")
        .map(lambda r: (r.value, r["value"] % 7), PAIR)
        .named("Pairs")
        .flat_map(lambda r: [(r.n, r.k)] * 2 if r[0] % 2 == 0 else [r], PAIR)
        .filter(lambda r: r.n % 3 != 0)
        .filter(pl.col("n") < count - 100)
        .filter("k <> 5")
        .select("n", pl.col("k"), twice="n * 2")
        .with_columns(half=pl.col("twice") // 4)
        .map_batches(lambda frame: frame.select("n", "k"), PAIR)
    )
    extra = env.read(cw.from_rows(EXTRA, PAIR), uid="extra", parallelism=1)
    (tmp_path / "told").mkdir()
    own = env.read(Countdown(tmp_path / "told"), uid="countdown", parallelism=1)
    tallied = numbers.union(extra, own).rebalance().process(Tally, PAIR).uid("tally")
    totals = (
        tallied.key_by("k").agg(rows=cw.count(), total=cw.sum("n"), low=cw.min("n"), high=cw.max("n")).uid("totals")
    )
    totals.collect("totals")
    visits = (
        tallied.key_by("k").process(Visits(breaks_at=3002), "k long, visits long, odd long, kept long").uid("visits")
    )
    visits.write(Ledger(tmp_path / "ledger"), uid="ledger")
    visits.side_output("milestones").collect("milestones")
    longest = tallied.key_by("k").reduce(lambda kept, row: row if row.n > kept.n else kept).uid("highest")
    longest.with_parallelism(1).write(cw.discard(), uid="nowhere", parallelism=1)
    tallied.side_output("tenth").write(cw.json_sink(tmp_path / "tenth"), uid="tenth")
    extra.broadcast().map(lambda r: r, PAIR).uid("copies").write(cw.csv_sink(tmp_path / "copies"), uid="copied")
    extra.write(cw.print_sink(), parallelism=1)
    tallied.write(cw.parquet_sink(tmp_path / "pairs"), uid="pairs")

    result = env.execute("every-verb")

    pairs = expected_pairs(count)
    assert result.status == "finished"
    assert result.attempts == 2
    written = pl.read_parquet(tmp_path / "pairs" / "**" / "*.parquet")
    assert Counter(written.select("n", "k").iter_rows()) == Counter(pairs)
    last = {row.k: tuple(row) for row in sorted(result.rows("totals"), key=lambda row: row.rows)}
    assert last == {
        k: (k, len(own), sum(own), min(own), max(own))
        for k in {k for _, k in pairs}
        for own in [[n for n, other in pairs if other == k]]
    }
    visited = Counter(k for _, k in pairs)
    ledger = Ledger(tmp_path / "ledger").rows()
    assert sorted((row["k"], row["visits"]) for row in ledger) == sorted(
        (k, visit) for k, most in visited.items() for visit in range(1, most + 1)
    )
    ends = {row["k"]: row for row in sorted(ledger, key=lambda row: row["visits"])}
    assert {k: row["odd"] for k, row in ends.items()} == Counter(k for n, k in pairs if n % 2) | Counter(
        dict.fromkeys(visited, 0)
    )
    assert all(row["kept"] == min(row["visits"], 3) for row in ledger)
    milestones = sorted((row.k, row.visits) for row in result.rows("milestones"))
    assert milestones == sorted((k, v) for k, most in visited.items() for v in range(100, most + 1, 100))
    tenth = [
        json.loads(line)["n"] for file in (tmp_path / "tenth").rglob("*.json") for line in file.read_text().splitlines()
    ]
    assert Counter(tenth) == Counter(n for n, _ in pairs if n % 10 == 0)
    copies = pl.concat([pl.read_csv(file) for file in (tmp_path / "copies").rglob("*.csv")])
    assert Counter(copies.iter_rows()) == Counter(EXTRA * 2)
    printed = capsys.readouterr().out.splitlines()
    assert set(printed) >= {f"n={n}, k={k}" for n, k in EXTRA}
    assert result.to_polars("totals").columns == ["k", "rows", "total", "low", "high"]
    assert result.records_in == count + len(EXTRA) + 600
    sunk = len(result.rows("totals")) + len(ledger) + len(milestones) + len(pairs) + len(tenth) + 3 * len(EXTRA)
    assert result.records_out == sunk + len(pairs)
    assert result.checkpoints >= 1
    # What ended in a checkpoint just before the failure has no reader afterwards, so not everything need be heard of; that the
    # last row is, when nothing fails, is shown in tests/unit/spark/test_task.py.
    for path in (tmp_path / "told").iterdir():
        heard = [int(line.split()[1]) for line in path.read_text().splitlines() if line != "closed"]
        assert all(0 <= left <= int(path.name) for left in heard)
        assert heard == sorted(heard, reverse=True), "a reader hears of what it gave, in order"
    assert 0 < result.seconds < DEADLINE_SECONDS


LINE = "kind string, n long"


def put(folder: Path, name: str, n: int) -> None:
    """A file of each format with the row ``n``, there at once and whole as a growing folder must get them."""
    folder.mkdir(exist_ok=True)
    for kind, content in (
        ("txt", f"{n}\n"),
        ("json", json.dumps({"n": n}) + "\n"),
        ("csv", f"n\n{n}\n"),
        ("parquet", None),
    ):
        staged = folder / f".{name}.{kind}"
        if content is None:
            pq.write_table(pa.table({"n": [n]}), staged)
        else:
            staged.write_text(content)
        (folder / kind).mkdir(exist_ok=True)
        staged.rename(folder / kind / f"{name}.{kind}")


def growing_job(folder: Path) -> cw.Environment:
    env = cw.Environment(parallelism=1, checkpointing=checkpoints_in(folder))
    inputs = folder / "in"
    number = "n long"
    texts = env.read(cw.text_files(inputs / "txt", watch=True), uid="txt")
    kinds = {
        "txt": texts.map(lambda r: (int(r.value),), number),
        "json": env.read(cw.json_files(inputs / "json", number, watch=True), uid="json"),
        "csv": env.read(cw.csv_files(inputs / "csv", number, watch=True), uid="csv"),
        "parquet": env.read(cw.parquet_files(inputs / "parquet", watch=True), uid="parquet"),
    }
    first, *others = (stream.select(pl.lit(kind).alias("kind"), "n") for kind, stream in kinds.items())
    first.union(*others).map(lambda r: r, LINE).uid("lines").write(cw.parquet_sink(folder / "out"), uid="out")
    return env


def committed(folder: Path) -> list[tuple[Any, ...]]:
    files = list((folder / "out").rglob("*.parquet"))
    return sorted(pl.read_parquet(files).iter_rows()) if files else []


def test_growing_folders_of_every_format_are_followed_and_a_canceled_job_goes_on(tmp_path: Path) -> None:
    kinds = ("csv", "json", "parquet", "txt")
    put(tmp_path / "in", "first", 1)
    job = growing_job(tmp_path).start("growing")
    wait_until(lambda: len(committed(tmp_path)) == 4, "the files of the start are read")
    put(tmp_path / "in", "second", 2)
    wait_until(lambda: len(committed(tmp_path)) == 8, "new files are found")
    job.cancel()
    assert job.status == "canceled"
    assert job.wait().status == "canceled"
    put(tmp_path / "in", "third", 3)
    again = growing_job(tmp_path).start("growing")
    wait_until(lambda: len(committed(tmp_path)) >= 12, "the job goes on where it was canceled")
    again.cancel()
    assert committed(tmp_path) == [(kind, n) for kind in kinds for n in (1, 2, 3)]
    assert any(line.startswith("restoring checkpoint") for line in again.log)


class Catalogue(cw.Source):
    """Written as the contract shows it: finds files by itself, all of them each time, and takes its time for that."""

    schema = "name string"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def splits(self) -> list[str]:
        return []

    def discover(self, known: Any) -> list[str]:
        with (self.folder.parent / "looks").open("a") as looks:
            looks.write("look\n")
        threading.Event().wait(1.5)
        return sorted(file.name for file in self.folder.iterdir())

    def open(self, split: str, position: int | None, ctx: Any) -> "CatalogueReader":
        return CatalogueReader(split, position or 0)


class CatalogueReader(cw.SplitReader):
    def __init__(self, name: str, given: int) -> None:
        self.name, self.given = name, given

    def next_batch(self, max_rows: int, timeout: timedelta) -> Any:
        if self.given:
            return cw.END
        self.given = 1
        return pa.RecordBatch.from_pydict({"name": [self.name]})

    def position(self) -> int:
        return self.given


def looks(folder: Path) -> int:
    written = folder / "looks"
    return len(written.read_text().splitlines()) if written.exists() else 0


def test_an_own_source_that_takes_long_to_look_for_splits_has_each_read_once(tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.mkdir()
    (names / "first").touch()
    env = cw.Environment(parallelism=2, checkpointing=checkpoints_in(tmp_path))
    env.read(Catalogue(names), uid="catalogue").write(cw.json_sink(tmp_path / "out"), uid="out")
    job = env.start("catalogue")

    def read() -> list[str]:
        files = list((tmp_path / "out").rglob("*.json"))
        return sorted(json.loads(line)["name"] for file in files for line in file.read_text().splitlines())

    wait_until(lambda: read() == ["first"], "the first file is found")
    (names / "second").touch()
    wait_until(lambda: "second" in read(), "the second file is found")
    seen = looks(tmp_path)
    wait_until(lambda: looks(tmp_path) >= seen + 2, "whatever it found twice was dealt out")
    newest = job.trigger_checkpoint()
    assert newest.status == "completed"
    job.cancel()
    assert read() == ["first", "second"]


def serve_lines(lines: list[str]) -> int:
    """A server that sends the lines to whoever connects first, and is gone."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listening, listening.accept()[0] as connection:
            connection.sendall("".join(f"{line}\n" for line in lines).encode())

    threading.Thread(target=serve, daemon=True).start()
    return int(listening.getsockname()[1])


def test_data_frames_and_a_socket_come_back_as_rows_with_checkpoints_in_memory(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(50).selectExpr("id as n", "concat('row ', id) as word")
    env = cw.Environment(parallelism=1, checkpointing=cw.Checkpointing("200ms", storage="memory"))
    env.read(frame, uid="frame").collect("frame")
    env.read(cw.spark_table(frame.where("n < 5")), uid="table").key_by("word").agg(n=cw.count()).collect("table")
    port = serve_lines(["to be", "or not to be"])
    env.read(cw.socket("127.0.0.1", port, allow_data_loss=True), uid="lines").collect("lines")
    result = env.execute("rows")
    assert sorted(tuple(row) for row in result.rows("frame")) == [(n, f"row {n}") for n in range(50)]
    assert sorted(tuple(row) for row in result.rows("table")) == [(f"row {n}", 1) for n in range(5)]
    assert [row.value for row in result.rows("lines")] == ["to be", "or not to be"]
    assert (result.records_in, result.records_out) == (57, 57)
    with pytest.raises(
        cw.ConfigError, match=r"rows\('nothing'\): this job has no collect\('nothing'\) \(it has: frame, lines"
    ):
        result.rows("nothing")


def test_without_checkpoints_a_job_runs_and_gives_its_rows(capsys: pytest.CaptureFixture[str]) -> None:
    env = cw.Environment(parallelism=2, checkpointing=None)
    numbers = env.read(cw.sequence(1000), uid="numbers").with_columns(k=pl.col("value") % 3)
    numbers.key_by("k").reduce(lambda kept, row: (kept.value + row.value, kept.k)).collect("sums")
    numbers.filter("value < 2").print()
    job = env.start("no-checkpoints")
    result = job.wait("120s")
    sums = {row.k: row.value for row in result.rows("sums")}
    assert sums == {k: sum(range(k, 1000, 3)) for k in range(3)}
    assert sorted(capsys.readouterr().out.splitlines()) == ["value=0, k=0", "value=1, k=1"]
    assert (result.checkpoints, job.checkpoints(), job.checkpoint_age) == (0, [], None)
    assert (result.records_in, result.records_out) == (1000, 1002)


class Bag(cw.KeyedProcess):
    """Holds what it is given until a row says to let go."""

    held = cw.ListState("string")

    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        if row.word:
            self.held.append(row.word * 1_000_000)
        else:
            yield (len(self.held),)
            self.held.clear()


class UntilTold(cw.Source):
    """Seven rows that fill the bag; one that empties it as soon as the file ``told`` is there."""

    schema = "k long, word string"

    def __init__(self, told: Path) -> None:
        self.told = told

    def splits(self) -> list[str]:
        return ["all"]

    def open(self, split: str, position: int | None, ctx: Any) -> "UntilToldReader":
        return UntilToldReader(self.told, position or 0)


class UntilToldReader(cw.SplitReader):
    def __init__(self, told: Path, given: int) -> None:
        self.told, self.given = told, given

    def next_batch(self, max_rows: int, timeout: timedelta) -> Any:
        if self.given == 8:
            return cw.END
        if self.given == 7 and not self.told.exists():
            return None
        self.given += 1
        return pa.RecordBatch.from_pydict({"k": [1], "word": ["x" if self.given < 8 else ""]})

    def position(self) -> int:
        return self.given


def bag_job(told: Path, tolerable_failures: int) -> cw.Environment:
    env = cw.Environment(
        parallelism=1,
        checkpointing=cw.Checkpointing("100ms", storage="memory", tolerable_failures=tolerable_failures),
        restart=cw.no_restart(),
    )
    env.read(UntilTold(told), uid="rows").key_by("k").process(Bag, "held long").uid("bag").collect("out")
    return env


def test_state_over_the_limit_of_the_memory_storage_declines_checkpoints_and_the_job_goes_on(tmp_path: Path) -> None:
    told = tmp_path / "told"
    job = bag_job(told, tolerable_failures=1_000_000).start("tolerated")
    wait_until(lambda: any(each.status == "failed" for each in job.checkpoints()), "a checkpoint is declined")
    reason = next(each.failure_reason for each in job.checkpoints() if each.status == "failed")
    assert reason is not None
    for part in ("bag[0]", "'held'", "5242880 bytes", "max_state"):
        assert part in reason
    told.touch()
    result = job.wait("120s")
    assert [row.held for row in result.rows("out")] == [7]
    assert job.checkpoints()[0].status == "completed"


def test_declined_checkpoints_beyond_the_tolerated_fail_the_job_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(cw.JobFailed) as failed:
        bag_job(tmp_path / "never", tolerable_failures=0).execute("not-tolerated")
    first = str(failed.value).splitlines()[0]
    for part in ("bag[0]", "'held'", "tolerable_failures"):
        assert part in first


def running_sums(folder: Path, **more: Any) -> cw.Environment:
    env = cw.Environment(parallelism=2, checkpointing=checkpoints_in(folder, interval="10 min", **more))
    numbers = env.read(cw.sequence(None, rate=2000), uid="numbers").with_columns(k=pl.col("value") % 10)
    numbers.key_by("k").agg(n=cw.count()).uid("sums").write(cw.discard(), uid="nowhere")
    return env


def test_checkpoints_tell_every_number_and_cancel_keeps_or_deletes_them(tmp_path: Path) -> None:
    job = running_sums(tmp_path).start("sums", restore="fresh")
    ended: list[cw.CheckpointInfo] = []
    job.on_checkpoint(ended.append)
    wait_until(lambda: job.status == "running" and len(job.progress) == 4, "all subtasks report")
    assert (job.checkpoints(), job.checkpoint_age) == ([], None)
    before = time.time()
    taken = job.trigger_checkpoint()
    assert job.checkpoints() == [taken] == ended
    assert (taken.kind, taken.status, taken.failure_reason, taken.unaligned) == ("checkpoint", "completed", None, False)
    assert before - 1 <= taken.trigger_time <= time.time()
    assert 0 < taken.duration < DEADLINE_SECONDS
    assert taken.state_bytes == sum(part.state_bytes for part in taken.subtasks) > 0
    assert taken.in_flight_bytes == 0
    for name in ("alignment", "start_delay", "sync_duration", "async_duration"):
        assert getattr(taken, name) == max(getattr(part, name) for part in taken.subtasks)
    assert taken.sync_duration > 0 and taken.async_duration > 0 and taken.start_delay > 0
    parts = {(part.vertex, part.index): part for part in taken.subtasks}
    assert set(parts) == {("numbers", 0), ("numbers", 1), ("sums", 0), ("sums", 1)}
    assert all(0 < part.acknowledged_after <= taken.duration for part in taken.subtasks)
    assert job.checkpoint_age is not None and timedelta(0) <= job.checkpoint_age < timedelta(seconds=DEADLINE_SECONDS)
    assert taken.path is not None
    job.cancel()
    assert job.wait().status == "canceled"
    with pytest.raises(cw.CutwaterError, match="'sums' is canceled: no checkpoint can be taken"):
        job.trigger_checkpoint()

    named = Path(taken.path.removeprefix("file:"))
    again = running_sums(tmp_path, on_cancel="delete").start("sums", restore=named)
    wait_until(lambda: again.status == "running", "the job runs again")
    newer = again.trigger_checkpoint()
    assert newer.id > taken.id
    assert completed_checkpoints(again) == 1
    assert any(line == f"restoring checkpoint {taken.id}" for line in again.log)
    again.cancel()
    assert newer.path is not None and newer.path != taken.path
    kept = {os.path.dirname(file) for file in stored_files(tmp_path / "checkpoints") if file.endswith(".arrow")}
    assert kept == {taken.path.removeprefix("file:")}, "only the one that the user named is left"


def stored_files(folder: Path) -> list[str]:
    return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
