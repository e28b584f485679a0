"""A Spark DataFrame as a bounded source: computed once per incarnation, then read like any Parquet folder."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cutwater.arguments import takes_no_others
from cutwater.connectors.disk import Disk
from cutwater.connectors.input_files import InputFiles
from cutwater.connectors.parquet import ParquetFiles, ParquetReader
from cutwater.connectors.source import Json, Source, SourceContext
from cutwater.errors import ConfigError, PlanError
from cutwater.schema import arrow_schema

COMPLETE: Final = "_cutwater_complete"
"""Written last. Spark's own mark can be switched off, and is not synced."""


@takes_no_others
def spark_table(df: Any) -> "SparkTable":
    """The rows of a DataFrame that has an end: computed once, when the job first starts."""
    return SparkTable(df)


def is_dataframe(value: object) -> bool:
    """Without importing pyspark. Asks the class: on a streaming DataFrame the mere look at ``.write`` raises."""
    return all(hasattr(type(value), name) for name in ("write", "schema", "isStreaming"))


class SparkTable(Source):
    """A DataFrame recomputed on restart may differ, so the driver has it written before anything is read from it."""

    def __init__(self, df: Any) -> None:
        if not is_dataframe(df):
            raise ConfigError(f"spark_table: {df!r} is no Spark DataFrame")
        if df.isStreaming:
            raise ConfigError(
                "spark_table: a streaming DataFrame has no end and cannot be read as a table; have Spark write it to files "
                "and read those with cw.parquet_files(path, watch=True), or read its source with a cw.Source of your own"
            )
        self._df: Any = df
        self.schema = arrow_schema(df.schema, "spark_table: the DataFrame's schema")
        self._files: ParquetFiles | None = None

    def materialise(self, folder: str | Path, disk: Disk | None = None) -> None:
        """Called by the driver at each start with a folder of the incarnation and this source's uid, which workers can
        read. Writes the table unless a start before did so completely; what a crash left half-written is replaced."""
        folder, disk = Path(folder), disk or Disk()
        mark = folder / COMPLETE
        if not mark.exists():
            if self._df is None:
                raise PlanError("spark_table: only the driver can write the table")
            self._df.write.mode("overwrite").parquet(folder.as_uri())
            disk.create_folder(folder)
            for path in folder.iterdir():
                if path.is_file():
                    disk.sync_file(path)
            names = sorted(path.name for path in folder.iterdir() if path.suffix == ".parquet")
            disk.write_new(folder / f"{COMPLETE}.writing", json.dumps(names).encode())
            disk.sync_file(folder / f"{COMPLETE}.writing")
            disk.rename(folder / f"{COMPLETE}.writing", mark)
            disk.sync_folder(folder)
        self._files = ParquetFiles(InputFiles(folder, "spark_table", watch=False), self.schema)

    def splits(self) -> Sequence[Json]:
        return self._materialised().splits()

    def splits_for(self, parallelism: int) -> Sequence[Json]:
        return self._materialised().splits_for(parallelism)

    def open(self, split: Json, position: Json | None, ctx: SourceContext) -> ParquetReader:
        return self._materialised().open(split, position, ctx)

    def describe(self) -> str:
        return "spark_table"

    def __getstate__(self) -> dict[str, Any]:
        """Workers need the files only; a DataFrame cannot leave the driver."""
        return {**self.__dict__, "_df": None}

    def _materialised(self) -> ParquetFiles:
        if self._files is None:
            raise PlanError("spark_table: the table was not materialised; materialise(folder) comes first")
        return self._files
