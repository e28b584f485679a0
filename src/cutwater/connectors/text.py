"""Text files: one row per line."""

import os
from typing import Final

import numpy as np
import pyarrow as pa

from cutwater.arguments import takes_no_others
from cutwater.connectors.line_blocks import LineBlock
from cutwater.connectors.line_source import LineFiles, LineFormat, Unreadable

SCHEMA: Final = pa.schema([("value", pa.string())])


@takes_no_others
def text_files(path: str | os.PathLike[str], *, watch: bool = False, on_error: str = "fail") -> LineFiles:
    """The lines of a file, a folder or a glob as column ``value``; a line that is not UTF-8 is malformed."""
    return LineFiles("text_files", path, TextFormat(), watch=watch, on_error=on_error)


class TextFormat(LineFormat):
    skips_blank_lines = False

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def parse(self, block: LineBlock, low: int, high: int, header: bytes | None) -> pa.RecordBatch:
        starts, ends, nexts = block.starts[low:high], block.ends[low:high], block.nexts[low:high]
        base = int(starts[0])
        octets = np.frombuffer(block.data, np.uint8)[base : nexts[-1]]
        keep = np.ones(len(octets), np.bool_)
        for back in (1, 2):  # a line end is one or two bytes long
            keep[(nexts - back - base)[nexts - ends >= back]] = False
        offsets = np.zeros(len(starts) + 1, np.int32)
        np.cumsum(ends - starts, out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets.data), pa.py_buffer(octets[keep].data)]
        values = pa.Array.from_buffers(pa.string(), len(starts), buffers)
        try:
            values.validate(full=True)
        except pa.ArrowInvalid as error:
            raise Unreadable("not UTF-8") from error
        return pa.RecordBatch.from_arrays([values], schema=SCHEMA)
