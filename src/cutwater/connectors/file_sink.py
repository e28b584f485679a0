"""Folders of Parquet, JSON or CSV files in which readers see rows of committed checkpoints only.

A transaction's files are written beside the target folder (``staging.py``), made durable at the barrier, and renamed
into the target when the checkpoint completed. Each file becomes visible whole; ``committed_files`` gives whole checkpoints.

A committable names the target it was prepared for. A program that restores it with another folder commits it there, where the
rows before it are, and writes its own output to its own folder: no row is missing and none is in both.
"""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from cutwater.arguments import takes_no_others
from cutwater.connectors.disk import Disk
from cutwater.connectors.file_formats import CsvFormat, FileFormat, FileWriter, JsonFormat, ParquetFormat
from cutwater.connectors.input_files import LONGEST_NAME_BYTES, local_path, refuse_too_long
from cutwater.connectors.manifest import was_committed, write_manifest
from cutwater.connectors.manifest_folding import ManifestFolding
from cutwater.connectors.partitions import split_by
from cutwater.connectors.sink import Json, SinkContext, TwoPhaseCommitSink
from cutwater.connectors.staging import Stage, Staging, abandoned, final_name, staged_name
from cutwater.connectors.storage_of_the_past import out_of_step, refuse_storage_of_the_past
from cutwater.errors import CommitLost, ConfigError, CutwaterError
from cutwater.schema import require_columns

MOST_OPEN_FILES = 64
"""Of one transaction; with more partitions than these, the file written longest ago is closed first."""

PathLike = str | os.PathLike[str]


@takes_no_others
def parquet_sink(path: PathLike, partition_by: str | Sequence[str] | None = None) -> "FileSink":
    """Parquet files in the folder ``path``; ``partition_by`` names columns that become folders (``day=2024-01-01``)."""
    return FileSink("parquet_sink", path, ParquetFormat(), partition_by)


@takes_no_others
def json_sink(path: PathLike) -> "FileSink":
    """Files with one JSON object per line in the folder ``path``."""
    return FileSink("json_sink", path, JsonFormat(), None)


@takes_no_others
def csv_sink(path: PathLike) -> "FileSink":
    """CSV files with a header in the folder ``path``."""
    return FileSink("csv_sink", path, CsvFormat(), None)


@dataclass(slots=True)
class _OpenFile:
    staged: Path
    partition: str
    writer: FileWriter | None
    rows: int = 0

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


@dataclass(slots=True, eq=False)
class Transaction:
    """Files are created by the first row for them, so that one without rows leaves nothing behind."""

    name: str
    files: list[_OpenFile] = field(default_factory=list)
    writable: dict[str, _OpenFile] = field(default_factory=dict)


class FileSink(TwoPhaseCommitSink):
    prepare_in_background = True

    def __init__(
        self,
        name: str,
        path: PathLike,
        form: FileFormat,
        partition_by: str | Sequence[str] | None,
        disk: Disk | None = None,
    ) -> None:
        self._name = name
        self._staging = Staging(Path(local_path(path, name, needed="a folder")))
        self._form = form
        self._partition_by = _checked_partitions(name, partition_by)
        self._disk = disk or Disk()
        self._folding = ManifestFolding()
        self._unprepared: set[Transaction] = set()
        target = self._staging.target
        refuse_too_long(str(target), name)
        if (excess := len(os.fsencode(self._staging.root.name)) - LONGEST_NAME_BYTES) > 0:
            raise ConfigError(
                f"{name}: path={os.fspath(path)!r}; a name is needed that is {excess} bytes shorter, as files are staged "
                f"beside it in {self._staging.root.name}"
            )
        if target == target.parent:
            raise ConfigError(
                f"{name}: path={os.fspath(path)!r}; a folder is needed that has a parent to stage files in"
            )
        if target.exists() and not target.is_dir():
            raise ConfigError(f"{name}: {target} is a file; a folder is needed")

    def check(self, schema: pa.Schema) -> None:
        require_columns(schema, self._partition_by, f"{self._name}: partition_by")
        if len(set(self._partition_by)) == len(schema.names):
            raise ConfigError(f"{self._name}: partition_by names every column, so that the files would hold none")
        for column in self._partition_by:
            data_type = schema.field(column).type
            if pa.types.is_nested(data_type) or pa.types.is_floating(data_type) or pa.types.is_binary(data_type):
                raise ConfigError(f"{self._name}: partition_by={column!r} is {data_type}; it cannot be a folder's name")
        self._form.check(schema, self._name)
        self._refuse_impossible_folders()

    def describe(self) -> str:
        return f"{self._name}({self._staging.target})"

    def open(self, ctx: SinkContext) -> None:
        self._ctx = ctx
        self._unprepared = set()
        self._file_schema = pa.schema([f for f in ctx.schema if f.name not in self._partition_by])
        self._create_folders()
        self._folder = self._staging.folder(ctx.incarnation, ctx.uid)
        self._disk.create_folder(self._folder)

    def recover(self, committables: Sequence[Json]) -> None:
        refuse_storage_of_the_past(self._staging, self._ctx, self._name, partitioned=bool(self._partition_by))
        listed = self._staged_by(committables)
        stagings = {self._staging, *(_recorded(committable) for committable in committables)}
        for staging in sorted(stagings, key=lambda each: each.target):
            for path, name in list(staging.staged(self._ctx.incarnation, self._ctx.uid)):
                if abandoned(self._ctx, path, name, listed):
                    self._disk.remove(path)

    def begin(self, name: str) -> Transaction:
        transaction = Transaction(name)
        self._unprepared.add(transaction)
        return transaction

    def write(self, txn: Transaction, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        parts = split_by(batch, self._partition_by) if self._partition_by else [("", batch)]
        for partition, rows in parts:
            file = self._file_for(txn, partition)
            assert file.writer is not None
            file.writer.write(rows)
            file.rows += rows.num_rows

    def prepare(self, txn: Transaction) -> Json | None:
        self._unprepared.discard(txn)
        if not txn.files:
            return None
        ctx, checkpoint = self._ctx, self._ctx.checkpoint_id
        if checkpoint is None:
            raise CutwaterError(f"{self._name}: {ctx.uid}, subtask {ctx.subtask}: prepare() needs ctx.checkpoint_id")
        files = []
        for index, file in enumerate(txn.files):
            file.close()
            self._disk.sync_file(file.staged)
            ready = self._folder / str(staged_name(ctx, txn.name, index, Stage.READY))
            self._disk.rename(file.staged, ready)
            final = Path(file.partition) / final_name(ctx, checkpoint, index, self._form.extension)
            files.append({"staged": str(ready.relative_to(self._staging.root)), "final": str(final), "rows": file.rows})
        self._disk.sync_folder(self._folder)
        return {
            "incarnation": ctx.incarnation,
            "uid": ctx.uid,
            "checkpoint": checkpoint,
            "attempt": ctx.attempt,
            "subtask": ctx.subtask,
            "target": str(self._staging.target),
            "files": files,
        }

    def commit(self, committable: Json) -> None:
        """A crash may leave any number of files renamed and the folder unsynced: all of it is done again."""
        folders = set()
        staging = self._staging_of(committable)
        for file in committable["files"]:
            staged, final = staging.root / file["staged"], staging.target / file["final"]
            if staged.exists():
                # 0: without checkpoints, each attempt writes all rows.
                if committable["checkpoint"] > 0 and final.exists():
                    found = f"{final} is there already"
                    raise CommitLost(out_of_step(self._staging, self._ctx, self._name, found))
                self._disk.create_folder(final.parent)
                self._disk.rename(staged, final)
            elif not final.exists():
                if not was_committed(staging, committable, file["final"]):
                    raise CommitLost(self._loss(staging, committable, file))
                continue  # committed before, and taken away by whoever reads the folder
            folders.add(final.parent)
        for folder in sorted(folders):
            self._disk.sync_folder(folder)

    def abort(self, committable: Json) -> None:
        for file in committable["files"]:
            self._disk.remove(self._staging_of(committable).root / file["staged"])

    def committed_everywhere(self, checkpoint_id: int, committables: Sequence[Json]) -> None:
        """Publishes the checkpoint's manifest, then removes what attempts before this one prepared in vain.

        That is safe now: an attempt commits everything that its restored checkpoint lists before it reads any input.
        """
        origins = [(self._staging_of(c), c["incarnation"], c["uid"]) for c in committables]
        for origin in sorted(set(origins), key=str):
            staging, incarnation, uid = origin
            mine = [c for c, its in zip(committables, origins, strict=True) if its == origin]
            write_manifest(self._disk, staging, checkpoint_id, mine)
            attempt = max(c["attempt"] for c in mine)
            for path, name in list(staging.staged(incarnation, uid)):
                if name.attempt < attempt:
                    self._disk.remove(path)
            self._folding.written(self._disk, staging, incarnation, uid)

    def abandon(self, uid: str, incarnation: str, listed: Sequence[Json]) -> None:
        kept, folder = self._staged_by(listed), self._staging.folder(incarnation, uid)
        for path, _ in list(self._staging.staged(incarnation, uid)):
            if path not in kept:
                self._disk.remove(path)
        self._disk.remove_empty_folder(folder)
        self._disk.remove_empty_folder(folder.parent)

    def close(self) -> None:
        for transaction in self._unprepared:
            for file in transaction.files:
                with contextlib.suppress(OSError, pa.ArrowException):
                    file.close()
                self._disk.remove(file.staged)
        self._unprepared = set()

    def _staging_of(self, committable: Json) -> Staging:
        """Of the folder that it was prepared for, unless that was moved, with all that was staged beside it, to be this one."""
        recorded = _recorded(committable)
        if recorded != self._staging and not _knows(recorded, committable) and _knows(self._staging, committable):
            return self._staging
        return recorded

    def _staged_by(self, committables: Sequence[Json]) -> set[Path]:
        return {
            staging.root / file["staged"]
            for committable in committables
            for staging in (self._staging, _recorded(committable))
            for file in committable["files"]
        }

    def _file_for(self, txn: Transaction, partition: str) -> _OpenFile:
        file = txn.writable.pop(partition, None)
        if file is None:
            if len(txn.writable) >= MOST_OPEN_FILES:
                txn.writable.pop(next(iter(txn.writable))).close()
            name = staged_name(self._ctx, txn.name, len(txn.files), Stage.OPEN)
            staged = self._folder / str(name)
            file = _OpenFile(staged, partition, self._form.create(staged, self._file_schema))
            txn.files.append(file)
        txn.writable[partition] = file  # last in the order of use
        return file

    def _refuse_impossible_folders(self) -> None:
        """Only looks: a pipeline that is written, explained or tested leaves no folders behind."""
        target = self._staging.target
        there = next(folder for folder in target.parents if os.path.exists(folder))
        if not there.is_dir():
            raise self._not_writable(f"{there} is a file")
        made_already = os.path.exists(target) and os.path.exists(self._staging.root)
        for folder in (target, self._staging.root) if made_already else (there, target):
            if os.path.exists(folder) and not os.access(folder, os.W_OK | os.X_OK):
                raise self._not_writable(f"{folder} is not writable")
        if os.path.exists(target):
            self._refuse_another_file_system(target.parent)

    def _create_folders(self) -> None:
        target, root = self._staging.target, self._staging.root
        try:
            self._disk.create_folder(target)
            self._disk.create_folder(root)
        except OSError as error:
            raise self._not_writable(f"{error.filename} cannot be created: {error.strerror}") from error
        self._refuse_another_file_system(root)

    def _refuse_another_file_system(self, beside: Path) -> None:
        target = self._staging.target
        if target.stat().st_dev != beside.stat().st_dev:
            raise ConfigError(
                f"{self._name}: {target} is the root of a file system of its own, so that files staged beside it in "
                f"{self._staging.root} cannot be renamed into it; give a folder below {target}"
            )

    def _not_writable(self, problem: str) -> ConfigError:
        return ConfigError(
            f"{self._name}: {problem}; files go to {self._staging.target} and are staged beside it in "
            f"{self._staging.root}, so both must be writable"
        )

    def _loss(self, staging: Staging, committable: Json, file: Json) -> str:
        return (
            f"{self._name}: {committable['uid']}, subtask {committable['subtask']}: {file['rows']} rows of checkpoint "
            f"{committable['checkpoint']} may be lost: the staged file {staging.root / file['staged']} is gone, and "
            f"{staging.target / file['final']} does not exist. If you moved the committed file away, put it back "
            "and start again; else restore a checkpoint before this one."
        )


def _checked_partitions(name: str, partition_by: Any) -> list[str]:
    several = isinstance(partition_by, Sequence) and not isinstance(partition_by, str)
    columns: Sequence[Any] = partition_by if several else () if partition_by is None else (partition_by,)
    names = [column for column in columns if isinstance(column, str)]
    if len(names) < len(columns):
        raise ConfigError(f"{name}: partition_by={partition_by!r}; the name of a column is needed, or a list of names")
    for at, column in enumerate(names):
        if column in names[:at]:
            raise ConfigError(f"{name}: partition_by names the column {column!r} twice; name it once")
        if column.startswith("."):
            raise ConfigError(
                f"{name}: partition_by={column!r}: readers pass over folders whose names begin with a dot; give the column "
                "another name first"
            )
    return names


def _recorded(committable: Json) -> Staging:
    return Staging(Path(committable["target"]))


def _knows(staging: Staging, committable: Json) -> bool:
    """Whether anything of ``committable`` is or was there."""
    return any(
        (staging.root / file["staged"]).exists()
        or (staging.target / file["final"]).exists()
        or was_committed(staging, committable, file["final"])
        for file in committable["files"]
    )
