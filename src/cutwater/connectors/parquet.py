"""Parquet files: row groups as what can be read in parallel, row group and row as position."""

import math
import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cutwater.arguments import takes_no_others
from cutwater.connectors.input_files import FoundFile, InputFiles, split_width
from cutwater.connectors.malformed import MALFORMED, MALFORMED_SCHEMA, Malformed, OnError, side_batch
from cutwater.connectors.partitions import partition_values
from cutwater.connectors.source import END, EndOfSplit, Json, Source, SourceContext, SplitReader
from cutwater.errors import ConfigError, DataError
from cutwater.schema import SchemaLike, arrow_schema

DECODED_ROWS = 16 * 1024
_UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError)


@takes_no_others
def parquet_files(
    path: str | os.PathLike[str],
    schema: SchemaLike | None = None,
    *,
    watch: bool = False,
    on_error: str = "fail",
) -> "ParquetFiles":
    """The rows of a file, a folder or a glob; ``schema`` chooses columns, and is needed where there is no file yet.

    Folders like ``day=2024-01-01`` become columns. What is malformed here is a row group or a whole file.
    """
    files = InputFiles(path, "parquet_files", watch=watch)
    known = None if schema is None else arrow_schema(schema, "parquet_files: schema")
    return ParquetFiles(files, known or _schema_of(files), OnError.of(on_error, "parquet_files"))


class ParquetFiles(Source):
    splits_end = True

    def __init__(self, files: InputFiles, schema: pa.Schema, on_error: OnError = OnError.FAIL) -> None:
        self.files, self.schema, self.on_error = files, schema, on_error
        self.bounded = not files.watch
        if on_error is OnError.SIDE:
            self.side_schemas = {MALFORMED: MALFORMED_SCHEMA}

    def splits(self) -> Sequence[Json]:
        return self.splits_for(1)

    def splits_for(self, parallelism: int) -> Sequence[Json]:
        found = self.files.found()
        return _splits(found, split_width(found, parallelism))

    def discover(self, known: Sequence[Json]) -> Sequence[Json]:
        found = self.files.found({split["path"] for split in known})
        return _splits(found, split_width(found, 1))

    def open(self, split: Json, position: Json | None, ctx: SourceContext) -> "ParquetReader":
        return ParquetReader(split, self.schema, self.on_error, position)

    def describe(self) -> str:
        return f"parquet_files({self.files.path})"


class ParquetReader(SplitReader):
    """Position: the row group and how many of its rows were returned."""

    def __init__(self, split: Json, schema: pa.Schema, on_error: OnError, position: Json | None) -> None:
        self._path, self._size, self._end = split["path"], split["size"], split["end"]
        self._schema, self._on_error = schema, on_error
        self._group: int = position["row_group"] if position else split["begin"]
        self._row: int = position["row"] if position else 0
        self._file: pq.ParquetFile | None = None
        self._decoding: Iterator[pa.RecordBatch] | None = None
        self._decoded: pa.RecordBatch | None = None
        self._side: list[Malformed] = []

    def next_batch(self, max_rows: int, timeout: timedelta) -> pa.RecordBatch | EndOfSplit | None:
        while self._end is None or self._group < self._end:
            try:
                batch = self._decode()
            except _UNREADABLE as error:
                self._pass_over(error)
                if self._side:
                    return pa.RecordBatch.from_pylist([], schema=self._schema)
                continue
            if batch is None:
                continue
            taken = batch.slice(0, max_rows)
            self._decoded = batch.slice(max_rows) if batch.num_rows > max_rows else None
            self._row += taken.num_rows
            return taken
        return END

    def position(self) -> Json:
        return {"row_group": self._group, "row": self._row}

    def side_batches(self) -> dict[str, pa.RecordBatch]:
        records, self._side = self._side, []
        return {MALFORMED: side_batch(records)} if records else {}

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _decode(self) -> pa.RecordBatch | None:
        """Rows that were not returned yet; None when the next row group is to be looked at."""
        if self._decoded is not None:
            return self._decoded
        file = self._file or self._open()
        if self._group >= (self._end or 0):
            return None
        if self._decoding is None:
            stored = [name for name in self._schema.names if name in file.schema_arrow.names]
            batches = file.iter_batches(DECODED_ROWS, row_groups=[self._group], columns=stored, use_threads=False)
            self._decoding = _without_first(batches, self._row)
        batch = next(self._decoding, None)
        if batch is None:
            self._group, self._row, self._decoding = self._group + 1, 0, None
            return None
        return self._as_declared(batch)

    def _open(self) -> pq.ParquetFile:
        try:
            size = Path(self._path).stat().st_size
        except OSError as error:
            raise DataError(
                f"parquet_files: {self._path} cannot be read: {error.strerror}; put the file back as it was"
            ) from error
        if size != self._size:
            raise DataError(
                f"parquet_files: {self._path} had {self._size} bytes when it was found and now has {size}; "
                "files must not change once they are found"
            )
        self._file = pq.ParquetFile(self._path)
        groups = self._file.metadata.num_row_groups
        self._end = groups if self._end is None else min(self._end, groups)
        return self._file

    def _as_declared(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        from_folders = partition_values(self._path)
        columns: list[pa.Array[Any]] = []
        for field in self._schema:
            if field.name in batch.schema.names:
                column = batch.column(field.name)
            elif field.name in from_folders:
                column = pa.array([from_folders[field.name]] * batch.num_rows, pa.string())
            else:
                raise ValueError(f"there is no column {field.name!r}; available: {', '.join(batch.schema.names)}")
            if column.null_count and not field.nullable:
                raise ValueError(f"column {field.name!r} holds null, but the schema says NOT NULL")
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _pass_over(self, error: Exception) -> None:
        """What cannot be opened is passed over whole, what cannot be decoded with the rest of its row group."""
        unit = "the file" if self._file is None else f"row group {self._group}"
        if self._row:
            unit += f" from row {self._row} on"
        record = Malformed(self._path, None, unit, f"{unit} cannot be read: {error}")
        if self._on_error is OnError.FAIL:
            raise record.as_error("parquet_files") from error
        if self._on_error is OnError.SIDE:
            self._side = [record]
        if self._file is None:
            self._end = self._group
        else:
            self._group += 1
        self._row, self._decoding, self._decoded = 0, None, None


def _without_first(batches: Iterator[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        skipped = min(count, batch.num_rows)
        count -= skipped
        if skipped < batch.num_rows:
            yield batch.slice(skipped)


def _splits(found: Sequence[FoundFile], width: int) -> list[Json]:
    """A file wider than ``width`` is split by row groups; the footer of a smaller one is left to its reader."""
    splits: list[Json] = []
    for file in found:
        bounds: list[int | None] = [0, None]
        if file.size > width:
            try:
                groups = pq.read_metadata(file.path).num_row_groups
            except _UNREADABLE:
                groups = 1  # the reader will say what is wrong, as on_error wants it
            pieces = max(1, min(groups, math.ceil(file.size / width)))
            bounds = [groups * piece // pieces for piece in range(pieces)] + [None]
        splits += [
            {"path": file.path, "begin": begin, "end": end, "size": file.size} for begin, end in pairwise(bounds)
        ]
    return splits


def _schema_of(files: InputFiles) -> pa.Schema:
    """That of the first file, and a column for each folder like ``day=2024-01-01``: long if every value is a number."""
    found = files.found()
    if not found:
        raise ConfigError(f"parquet_files: there is no file in {files.path} to take the schema from; pass schema=")
    try:
        stored = pq.read_schema(found[0].path)
    except _UNREADABLE as error:
        raise ConfigError(
            f"parquet_files: {found[0].path} is no Parquet file: {error}; correct the path, or pass schema="
        ) from error
    fields = [pa.field(f.name, _plain(f.type), f.nullable) for f in stored]
    folders = [partition_values(file.path) for file in found]
    for column in folders[0]:
        if column not in stored.names:
            values = [folder.get(column) for folder in folders]
            numbers = all(value is None or _is_number(value) for value in values)
            fields.append(pa.field(column, pa.int64() if numbers else pa.string()))
    return pa.schema(fields)


def _plain(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type if isinstance(data_type, pa.DictionaryType) else data_type


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and str(int(text)) == text
