"""Writers of one output file each, for the file sinks."""

from abc import ABC, abstractmethod
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from cutwater.connectors.csv_lines import refuse_unfit_for_csv
from cutwater.connectors.json_lines import refuse_unfit_for_json
from cutwater.errors import SchemaError

ROW_GROUP_ROWS = 256 * 1024
ROW_GROUP_BYTES = 32 << 20


class FileWriter(ABC):
    """Creates a file that must not exist yet. Not durable: whoever owns the path syncs it after ``close``."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class FileFormat(ABC):
    extension: str

    @abstractmethod
    def create(self, path: Path, schema: pa.Schema) -> FileWriter: ...

    def check(self, schema: pa.Schema, where: str) -> None:  # noqa: B027 (optional hook)
        """Raise SchemaError if a column cannot be written."""


class ParquetFormat(FileFormat):
    extension = ".parquet"

    def create(self, path: Path, schema: pa.Schema) -> FileWriter:
        return _ParquetWriter(path, schema)


class JsonFormat(FileFormat):
    """One object per line; what JSON has no number for (NaN, infinity) becomes null."""

    extension = ".json"

    def create(self, path: Path, schema: pa.Schema) -> FileWriter:
        return _JsonWriter(path)

    def check(self, schema: pa.Schema, where: str) -> None:
        refuse_unfit_for_json(schema, where)


class CsvFormat(FileFormat):
    """With a header; null is an empty cell, the empty string ``""``."""

    extension = ".csv"

    def create(self, path: Path, schema: pa.Schema) -> FileWriter:
        return _CsvWriter(path, schema)

    def check(self, schema: pa.Schema, where: str) -> None:
        refuse_unfit_for_csv(schema, where)
        for field in schema:
            if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
                raise SchemaError(f"{where}: column {field.name!r} is binary; CSV cannot hold bytes (use a string)")


class _ParquetWriter(FileWriter):
    """Collects batches into row groups: a small one per batch would make files large and slow to read."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        path.touch(exist_ok=False)
        self._schema = schema
        self._writer = pq.ParquetWriter(path, schema)
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema), row_group_size=ROW_GROUP_ROWS)
        self._waiting, self._rows, self._bytes = [], 0, 0


class _JsonWriter(FileWriter):
    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")

    def write(self, batch: pa.RecordBatch) -> None:
        frame = pl.from_arrow(pa.Table.from_batches([batch]))
        assert isinstance(frame, pl.DataFrame)
        frame.write_ndjson(self._file)

    def close(self) -> None:
        self._file.close()


class _CsvWriter(FileWriter):
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        path.touch(exist_ok=False)
        self._writer = pc.CSVWriter(str(path), schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()
