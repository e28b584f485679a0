"""A job in small: numbers into a file sink, with checkpoints in a journal. Dies at a given step of the disk, if told."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from cutwater.connectors.disk import Disk
from cutwater.connectors.file_formats import CsvFormat, FileFormat, JsonFormat, ParquetFormat
from cutwater.connectors.file_sink import FileSink
from cutwater.connectors.sink import SinkContext

SCHEMA = pa.schema([("checkpoint", pa.int64()), ("value", pa.int64()), ("part", pa.string())])
FORMATS: dict[str, FileFormat] = {"parquet": ParquetFormat(), "json": JsonFormat(), "csv": CsvFormat()}
ROWS_PER_CHECKPOINT = 6
CHECKPOINTS = 2


class DyingDisk(Disk):
    """Counts what it is asked for, and kills its process before step ``die_at``.

    Nothing is really synced: the death of a process loses no page of the kernel's, and hundreds of syncs take minutes.
    """

    def __init__(self, die_at: int | None = None) -> None:
        self.steps = 0
        self.die_at = die_at

    def step(self) -> None:
        if self.steps == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1

    def create_folder(self, path: Path) -> None:
        self.step()
        super().create_folder(path)

    def write_new(self, path: Path, data: bytes) -> None:
        self.step()
        path.write_bytes(data[: len(data) // 2])
        self.step()
        super().write_new(path, data)

    def sync_file(self, path: Path) -> None:
        self.step()
        assert path.is_file()

    def sync_folder(self, path: Path) -> None:
        self.step()
        assert path.is_dir()

    def rename(self, source: Path, target: Path) -> None:
        self.step()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self.step()
        super().remove(path)


class Journal:
    """The job's completed checkpoints, newest last."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def completed(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._path.read_text().splitlines()] if self._path.exists() else []

    def complete(self, checkpoint: int, value: int, committables: list[Any]) -> None:
        line = json.dumps({"checkpoint": checkpoint, "value": value, "committables": committables}) + "\n"
        with self._path.open("a") as file:
            file.write(line)

    def reserve(self) -> int:
        """Ids never repeat, also not those of attempts that died."""
        reserved = self._path.with_suffix(".ids")
        checkpoint = len(reserved.read_text()) + 1 if reserved.exists() else 1
        with reserved.open("a") as file:
            file.write(".")
        return checkpoint


def context(attempt: int, subtask: int = 0, parallelism: int = 1) -> SinkContext:
    return SinkContext("job", "out", subtask, parallelism, attempt, "6e9b", SCHEMA)


def make_sink(target: Path, form: str, disk: Disk) -> FileSink:
    partition_by = "part" if form == "parquet" else None
    return FileSink("file_sink", target, FORMATS[form], partition_by, disk)


def run(target: Path, form: str, attempt: int, die_at: int | None = None) -> int:
    """From the journal's latest checkpoint to the end; the number of steps it took."""
    journal, disk = Journal(target.with_suffix(".journal")), DyingDisk(die_at)
    sink, ctx = make_sink(target, form, disk), context(attempt)
    latest = journal.completed()[-1:]
    committables = latest[0]["committables"] if latest else []
    sink.open(ctx)
    sink.recover(committables)
    for committable in committables:
        sink.commit(committable)
    if latest:
        sink.committed_everywhere(latest[0]["checkpoint"], committables)
    value = latest[0]["value"] if latest else 0
    while value < CHECKPOINTS * ROWS_PER_CHECKPOINT:
        ctx.checkpoint_id = journal.reserve()
        transaction = sink.begin(f"{attempt}/{ctx.checkpoint_id}")
        for _ in range(2):
            disk.step()
            sink.write(transaction, rows(ctx.checkpoint_id, value, ROWS_PER_CHECKPOINT // 2))
            value += ROWS_PER_CHECKPOINT // 2
        disk.step()
        committable = sink.prepare(transaction)
        disk.step()
        journal.complete(ctx.checkpoint_id, value, [json.loads(json.dumps(committable))])
        disk.step()
        sink.commit(committable)
        disk.step()
        sink.committed_everywhere(ctx.checkpoint_id, [committable])
    sink.close()
    return disk.steps


def rows(checkpoint: int, first: int, count: int) -> pa.RecordBatch:
    values = range(first, first + count)
    return pa.RecordBatch.from_pydict(
        {"checkpoint": [checkpoint] * count, "value": list(values), "part": [f"p{v % 2}" for v in values]},
        schema=SCHEMA,
    )


def serve() -> None:
    """Runs a job per line of input in a fork of this process, which has everything imported; answers with its status."""
    rows(0, 0, 1).to_pandas()  # the first touch of pandas takes seconds; not in every child
    for line in sys.stdin:
        target, form, attempt, die_at = json.loads(line)
        child = os.fork()
        if child == 0:
            run(Path(target), form, attempt, die_at)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
