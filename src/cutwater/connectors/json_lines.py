"""JSON files with one object per line."""

import os
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from cutwater.arguments import takes_no_others
from cutwater.connectors.line_blocks import LineBlock
from cutwater.connectors.line_source import LineFiles, LineFormat, Unreadable, decoded, refuse_nulls
from cutwater.errors import SchemaError
from cutwater.schema import SchemaLike, arrow_schema

OPEN, CLOSE = ord("{"), ord("}")
_ROW_IN_BLOCK: Final = " in row 0"


@takes_no_others
def json_files(
    path: str | os.PathLike[str], schema: SchemaLike, *, watch: bool = False, on_error: str = "fail"
) -> LineFiles:
    """The objects of a file, a folder or a glob; fields that the schema does not name are passed over, missing ones null."""
    form = JsonFormat(arrow_schema(schema, "json_files: schema"))
    return LineFiles("json_files", path, form, watch=watch, on_error=on_error)


def refuse_unfit_for_json(schema: pa.Schema, where: str) -> None:
    for field in schema:
        if unfit := _unfit(field.type):
            raise SchemaError(f"{where}: column {field.name!r} is {field.type}; JSON lines cannot hold {unfit}")


class JsonFormat(LineFormat):
    def __init__(self, schema: pa.Schema) -> None:
        refuse_unfit_for_json(schema, "json_files")
        self._schema = schema
        self._read_as = pa.schema([pa.field(field.name, _read_type(field.type)) for field in schema])

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def parse(self, block: LineBlock, low: int, high: int, header: bytes | None) -> pa.RecordBatch:
        piece = block.piece(low, high)
        decoded(piece)
        _refuse_other_than_objects(block, low, high)
        try:
            table = pj.read_json(
                pa.BufferReader(piece),  # type: ignore[arg-type]
                read_options=pj.ReadOptions(use_threads=False, block_size=len(piece) + 1),
                parse_options=pj.ParseOptions(explicit_schema=self._read_as, unexpected_field_behavior="ignore"),
            )
            records = table.select(self._schema.names).cast(self._schema).combine_chunks().to_batches()
        except (pa.ArrowException, UnicodeDecodeError, ValueError) as error:
            raise Unreadable(str(error).removesuffix(_ROW_IN_BLOCK)) from error
        return refuse_nulls(records[0]) if records else pa.RecordBatch.from_pylist([], schema=self._schema)


def _refuse_other_than_objects(block: LineBlock, low: int, high: int) -> None:
    """Each line must begin with { and end with }.

    Then no object spans lines, so that as many objects as lines means one each. And Arrow's reader, which takes the whole
    process down when it meets nothing but a bare ``null``, never sees one.
    """
    octets = np.frombuffer(block.data, np.uint8)
    starts, ends = block.starts[low:high], block.ends[low:high]
    filled = ends > starts
    starts, ends = starts[filled], ends[filled]
    if high - low == 1:  # a lone line may have white space around it
        text = block.line(low).strip()
        sound = text.startswith(b"{") and text.endswith(b"}")
    else:
        sound = bool((octets[starts] == OPEN).all() and (octets[ends - 1] == CLOSE).all())
    if not sound:
        raise Unreadable("not a JSON object")


def _read_type(data_type: pa.DataType) -> pa.DataType:
    """Arrow's JSON reader takes dates for numbers; they are read as text and then cast."""
    if pa.types.is_date(data_type):
        return pa.string()
    if pa.types.is_list(data_type):
        return pa.list_(_read_type(data_type.value_type))
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(f.name, _read_type(f.type)) for f in _fields(data_type)])
    return data_type


def _unfit(data_type: pa.DataType) -> str | None:
    if pa.types.is_map(data_type):
        return "maps (use a struct, or an array of structs)"
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        return "bytes (use a string)"
    if pa.types.is_list(data_type):
        return _unfit(data_type.value_type)
    if pa.types.is_struct(data_type):
        return next((unfit for field in _fields(data_type) if (unfit := _unfit(field.type))), None)
    return None


def _fields(struct: pa.DataType) -> "list[pa.Field[Any]]":
    return [struct.field(i) for i in range(struct.num_fields)]
