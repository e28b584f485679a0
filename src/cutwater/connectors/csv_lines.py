"""CSV files."""

import os
import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.csv as pc

from cutwater.arguments import takes_no_others
from cutwater.connectors.flag import checked_flag
from cutwater.connectors.line_blocks import LineBlock, Offsets, every_newline
from cutwater.connectors.line_source import LineFiles, LineFormat, Unreadable, decoded, refuse_nulls
from cutwater.errors import ConfigError, SchemaError
from cutwater.schema import SchemaLike, arrow_schema, missing_column

QUOTE: Final = ord('"')
_ZONE_AT_END: Final = r"(Z|[T ].*[+-]\d\d(:?\d\d)?)$"
_COLUMN_OF_FAULT: Final = re.compile(r"In CSV column #(\d+): ")
_COLUMNS_FOUND: Final = re.compile(r"Expected (\d+) columns, got (\d+)")


@takes_no_others
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
    name are passed over. An empty cell is null, ``""`` the empty string. A moment without a zone is one of UTC.
    ``multiline=True`` allows line ends within quotes; each file is then one split.
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
        self._read_as = {f.name: pa.string() if _is_instant(f.type) else f.type for f in schema}
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
        try:
            table = self._read(piece, names, self._read_as)
        except (pa.ArrowException, ValueError) as error:
            raise Unreadable(self._fault(piece, names, str(error)) if high - low == 1 else str(error)) from error
        for at, field in enumerate(self._schema):
            if _is_instant(field.type):
                table = table.set_column(at, field, _instants(table.column(at), field))
        records = table.cast(self._schema).combine_chunks().to_batches()
        return refuse_nulls(records[0]) if records else pa.RecordBatch.from_pylist([], schema=self._schema)

    def _read(self, piece: bytes, names: list[str], types: dict[str, pa.DataType]) -> pa.Table:
        return pc.read_csv(
            pa.BufferReader(piece),  # type: ignore[arg-type]
            read_options=pc.ReadOptions(use_threads=False, block_size=len(piece) + 1, column_names=names),
            parse_options=pc.ParseOptions(delimiter=self._delimiter, newlines_in_values=not self.splits_anywhere),
            convert_options=pc.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _fault(self, line: bytes, names: list[str], error: str) -> str:
        """Arrow counts rows within what it was given and columns from 0; the user knows lines and names."""
        if found := _COLUMNS_FOUND.search(error):
            return f"{found[2]} columns instead of {found[1]}"
        found = _COLUMN_OF_FAULT.search(error)
        if found is None or int(found[1]) >= len(names):
            return error
        name = names[int(found[1])]
        value = self._read(line, names, {name: pa.string()}).column(0)[0].as_py()
        return _misfit(self._schema.field(name), value)

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


def _is_instant(data_type: pa.DataType) -> bool:
    return isinstance(data_type, pa.TimestampType) and data_type.tz is not None


def _instants(texts: "pa.ChunkedArray[Any]", field: "pa.Field[Any]") -> "pa.ChunkedArray[Any]":
    """Arrow reads columns in which every moment has a zone, or none has one; users have both."""
    assert isinstance(field.type, pa.TimestampType)
    nothing = pa.scalar(None, pa.string())
    zoned = compute.match_substring_regex(texts, _ZONE_AT_END)
    try:
        with_zone = compute.if_else(zoned, texts, nothing).cast(pa.timestamp(field.type.unit, "UTC"))
        without = compute.if_else(zoned, nothing, texts).cast(pa.timestamp(field.type.unit))
    except pa.ArrowException as error:
        raise Unreadable(_misfit(field, texts[0].as_py())) from error
    instants: pa.ChunkedArray[Any] = compute.coalesce(with_zone, without.cast(with_zone.type)).cast(field.type)
    return instants


def _misfit(field: "pa.Field[Any]", value: object) -> str:
    """Of a single line."""
    return f"column {field.name!r}: {value!r} is no {field.type}"


def _checked_delimiter(delimiter: object) -> str:
    if not isinstance(delimiter, str) or len(delimiter.encode()) != 1 or delimiter in '"\r\n':
        raise ConfigError(f"csv_files: delimiter={delimiter!r}; one ASCII character other than a quote is needed")
    return delimiter
