"""CSV files."""

import os
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from cutwater.connectors.flag import checked_flag
from cutwater.connectors.line_blocks import LineBlock, Offsets, every_newline
from cutwater.connectors.line_source import LineFiles, LineFormat, Unreadable, decoded, refuse_nulls
from cutwater.errors import ConfigError, SchemaError
from cutwater.schema import SchemaLike, arrow_schema, missing_column

QUOTE: Final = ord('"')


def csv_files(
    path: str | os.PathLike[str],
    schema: SchemaLike,
    *,
    header: bool = True,
    delimiter: str = ",",
    multiline: bool = False,
    watch: bool = False,
    on_error: str = "fail",
) -> LineFiles:
    """The records of a file, a folder or a glob.

    With ``header`` the first line of each file names its columns, in any order, and columns that the schema does not
    name are passed over. An empty cell is null, ``""`` the empty string. ``multiline=True`` allows line ends within
    quotes; each file is then one split.
    """
    form = CsvFormat(arrow_schema(schema, "csv_files: schema"), header, delimiter, multiline)
    return LineFiles("csv_files", path, form, watch=watch, on_error=on_error)


def refuse_unfit_for_csv(schema: pa.Schema, where: str) -> None:
    for field in schema:
        if pa.types.is_nested(field.type):
            raise SchemaError(
                f"{where}: column {field.name!r} is {field.type}; CSV cannot hold it (use JSON or Parquet)"
            )


def newlines_outside_quotes(data: bytes) -> Offsets:
    """A line end counts when an even number of quotes lies before it; a doubled quote within quotes counts twice."""
    newlines = every_newline(data)
    quotes = np.flatnonzero(np.frombuffer(data, np.uint8) == QUOTE)
    outside: Offsets = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
    return outside


class CsvFormat(LineFormat):
    def __init__(self, schema: pa.Schema, header: bool, delimiter: str, multiline: bool) -> None:
        refuse_unfit_for_csv(schema, "csv_files")
        self._schema = schema
        self._delimiter = _checked_delimiter(delimiter)
        self.has_header = checked_flag("csv_files", "header", header)
        self.splits_anywhere = not checked_flag("csv_files", "multiline", multiline)
        if multiline:
            self.boundaries = newlines_outside_quotes

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def check_header(self, header: bytes) -> str | None:
        try:
            names = self._names(header)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            return f"the header cannot be read: {error}"
        for name in self._schema.names:
            if name not in names:
                return missing_column(name, names, "the header")
            if names.count(name) > 1:
                return f"the header names {name!r} twice"
        return None

    def parse(self, block: LineBlock, low: int, high: int, header: bytes | None) -> pa.RecordBatch:
        piece = block.piece(low, high)
        decoded(piece)
        self._refuse_open_quotes(block, low, high)
        names = self._schema.names if header is None else self._names(header)
        wanted = {field.name: field.type for field in self._schema}
        try:
            table = pc.read_csv(
                pa.BufferReader(piece),  # type: ignore[arg-type]
                read_options=pc.ReadOptions(use_threads=False, block_size=len(piece) + 1, column_names=names),
                parse_options=pc.ParseOptions(delimiter=self._delimiter, newlines_in_values=not self.splits_anywhere),
                convert_options=pc.ConvertOptions(
                    column_types=wanted,
                    include_columns=self._schema.names,
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
            records = table.cast(self._schema).combine_chunks().to_batches()
        except (pa.ArrowException, ValueError) as error:
            raise Unreadable(str(error)) from error
        return refuse_nulls(records[0]) if records else pa.RecordBatch.from_pylist([], schema=self._schema)

    def _refuse_open_quotes(self, block: LineBlock, low: int, high: int) -> None:
        """Each line must close its quotes: then no record spans lines, so that as many records as lines means one each."""
        octets = np.frombuffer(block.data, np.uint8)
        quotes = np.flatnonzero(octets[: block.nexts[high - 1]] == QUOTE)
        if (np.diff(np.searchsorted(quotes, [block.starts[low], *block.nexts[low:high]])) % 2).any():
            raise Unreadable("a quote is not closed (for line ends within quotes pass multiline=True)")

    def _names(self, header: bytes) -> list[str]:
        decoded(header)
        table = pc.read_csv(
            pa.BufferReader(header + b"\n"),  # type: ignore[arg-type]
            read_options=pc.ReadOptions(use_threads=False, autogenerate_column_names=True),
            parse_options=pc.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            convert_options=pc.ConvertOptions(
                column_types={f"f{i}": pa.string() for i in range(header.count(self._delimiter.encode()) + 1)}
            ),
        )
        return [str(column[0].as_py()) for column in table.columns]


def _checked_delimiter(delimiter: object) -> str:
    if not isinstance(delimiter, str) or len(delimiter.encode()) != 1 or delimiter in '"\r\n':
        raise ConfigError(f"csv_files: delimiter={delimiter!r}; one ASCII character other than a quote is needed")
    return delimiter
