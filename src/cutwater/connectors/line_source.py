"""Files of lines: byte ranges as splits, an offset as position, and malformed lines found one by one."""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.connectors.input_files import FoundFile, InputFiles, refuse_compressed, split_width
from cutwater.connectors.line_blocks import Boundaries, ByteRange, LineBlock, LineBlocks, Offsets, every_newline
from cutwater.connectors.malformed import MALFORMED, MALFORMED_SCHEMA, Malformed, OnError, side_batch
from cutwater.connectors.source import END, EndOfSplit, Json, Source, SourceContext, SplitReader


class Unreadable(Exception):
    """Some of these lines are malformed; the message says why, for whoever looks at a single line."""


class LineFormat(ABC):
    """How lines become records. Holds no position: the same lines give the same records."""

    skips_blank_lines: bool = True
    splits_anywhere: bool = True
    """False when a record may span lines, so that only the file's begin is surely a record's begin."""
    boundaries: Boundaries = staticmethod(every_newline)

    @property
    @abstractmethod
    def schema(self) -> pa.Schema: ...

    @abstractmethod
    def parse(self, block: LineBlock, low: int, high: int, header: bytes | None) -> pa.RecordBatch:
        """One record for each line low..high-1 that is not blank; raises Unreadable if any is malformed."""

    has_header: bool = False

    def check_header(self, header: bytes) -> str | None:
        """Why the file cannot be read at all, judging by its first line."""
        return None


class LineFiles(Source):
    """Splits are byte ranges of files; each holds the lines that begin in it."""

    splits_end = True

    def __init__(
        self, name: str, path: str | os.PathLike[str], form: LineFormat, *, watch: bool, on_error: str
    ) -> None:
        self.name = name
        self.files = InputFiles(path, name, watch=watch)
        self.form = form
        self.on_error = OnError.of(on_error, name)
        self.schema = form.schema
        self.bounded = not watch
        if self.on_error is OnError.SIDE:
            self.side_schemas = {MALFORMED: MALFORMED_SCHEMA}

    def splits(self) -> Sequence[Json]:
        return self.splits_for(1)

    def splits_for(self, parallelism: int) -> Sequence[Json]:
        found = self.files.found()
        return self._ranges(found, split_width(found, parallelism))

    def discover(self, known: Sequence[Json]) -> Sequence[Json]:
        found = self.files.found({split["path"] for split in known})
        return self._ranges(found, split_width(found, 1))

    def open(self, split: Json, position: Json | None, ctx: SourceContext) -> "LineReader":
        part = ByteRange(split["path"], split["begin"], split["end"], split["size"])
        return LineReader(self.name, part, self.form, self.on_error, position)

    def describe(self) -> str:
        return f"{self.name}({self.files.path})"

    def _ranges(self, found: Sequence[FoundFile], width: int) -> Sequence[Json]:
        ranges = []
        for file in found:
            refuse_compressed(file.path, self.name)
            step = width if self.form.splits_anywhere else max(file.size, 1)
            ranges += [
                {"path": file.path, "begin": begin, "end": min(begin + step, file.size), "size": file.size}
                for begin in range(0, file.size, step)
            ]
        return ranges


@dataclass(slots=True)
class _Parsed:
    """A block's records, and how far they were returned: ``records_before[i]`` records lie before line i."""

    records: pa.RecordBatch
    records_before: Offsets
    ends: Offsets
    malformed: list[tuple[int, Malformed]]
    line: int = 0


class LineReader(SplitReader):
    """Position: the offset behind the last line that was returned, dropped or sent aside."""

    def __init__(self, where: str, part: ByteRange, form: LineFormat, on_error: OnError, position: int | None) -> None:
        self._where, self._part, self._form, self._on_error = where, part, form, on_error
        self._blocks = LineBlocks(where, part, form.boundaries)
        self._position = position
        self._header: bytes | None = None
        self._opened = False
        self._read_from = 0
        self._parsed: _Parsed | None = None
        self._side: list[Malformed] = []
        self._lines_known = (0, 0)

    def next_batch(self, max_rows: int, timeout: timedelta) -> pa.RecordBatch | EndOfSplit | None:
        if not self._opened:
            self._open()
        while True:
            if self._parsed is None:
                block = self._blocks.block(self._read_from)
                if block is None:
                    return END
                self._parsed = self._parse(block)
                self._read_from = block.offset + int(block.nexts[-1])
            taken = self._take(self._parsed, max_rows)
            if taken.num_rows or self._side:
                return taken

    def position(self) -> Json:
        return self._position

    def side_batches(self) -> dict[str, pa.RecordBatch]:
        records, self._side = self._side, []
        return {MALFORMED: side_batch(records)} if records else {}

    def _open(self) -> None:
        self._opened = True
        if self._position is not None and self._position >= self._part.end:
            self._read_from = self._position
            return
        behind_header = 0
        if self._form.has_header:
            first = LineBlocks(
                self._where, ByteRange(self._part.path, 0, 1, self._part.size), self._form.boundaries
            ).block(0)
            if first is not None:
                self._header, behind_header = first.line(0), int(first.nexts[0])
                if problem := self._form.check_header(self._header):
                    self._refuse_file(problem)
                    return
        self._read_from = max(behind_header, self._position or self._blocks.first_line_start())

    def _refuse_file(self, problem: str) -> None:
        """The header rules the whole file out; the split that begins the file says so, once."""
        record = Malformed(self._part.path, 1, (self._header or b"").decode("utf-8", "backslashreplace"), problem)
        if self._on_error is OnError.FAIL:
            raise record.as_error(self._where)
        if self._on_error is OnError.SIDE and self._part.begin == 0 and self._position is None:
            nothing = self._form.schema.empty_table().to_batches()
            records = nothing[0] if nothing else pa.RecordBatch.from_pylist([], schema=self._form.schema)
            self._parsed = _Parsed(records, np.zeros(2, np.int64), np.array([self._part.end]), [(0, record)])
        self._read_from = self._part.end

    def _take(self, parsed: _Parsed, max_rows: int) -> pa.RecordBatch:
        low, high = parsed.line, min(parsed.line + max_rows, len(parsed.ends))
        begin, end = int(parsed.records_before[low]), int(parsed.records_before[high])
        self._side = [record for line, record in parsed.malformed if low <= line < high]
        self._position = int(parsed.ends[high - 1])
        parsed.line = high
        if high == len(parsed.ends):
            self._parsed = None
        return parsed.records.slice(begin, end - begin)

    def _parse(self, block: LineBlock) -> _Parsed:
        holds_record = np.ones(len(block), np.bool_)
        if self._form.skips_blank_lines:
            holds_record = block.ends > block.starts
        pieces: list[pa.RecordBatch] = []
        malformed: list[tuple[int, Malformed]] = []
        self._parse_piece(block, 0, len(block), holds_record, pieces, malformed)
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(holds_record, dtype=np.int64)))
        table = pa.Table.from_batches(pieces, self._form.schema).combine_chunks().to_batches()
        records = table[0] if table else pa.RecordBatch.from_pylist([], schema=self._form.schema)
        return _Parsed(records, before, block.nexts + block.offset, malformed)

    def _parse_piece(
        self,
        block: LineBlock,
        low: int,
        high: int,
        holds_record: npt.NDArray[np.bool_],
        pieces: list[pa.RecordBatch],
        malformed: list[tuple[int, Malformed]],
    ) -> None:
        """All lines at once if they are sound; else by halves, down to the lines that are not."""
        if not holds_record[low:high].any():
            return
        try:
            records = self._form.parse(block, low, high, self._header)
            if records.num_rows != int(holds_record[low:high].sum()):
                raise Unreadable("not exactly one record")
            pieces.append(records)
        except Unreadable as error:
            if high - low > 1:
                middle = (low + high) // 2
                self._parse_piece(block, low, middle, holds_record, pieces, malformed)
                self._parse_piece(block, middle, high, holds_record, pieces, malformed)
                return
            holds_record[low] = False
            if self._form.skips_blank_lines and not block.line(low).strip():
                return
            if self._on_error is not OnError.SKIP:
                record = self._malformed(block, low, str(error))
                if self._on_error is OnError.FAIL:
                    raise record.as_error(self._where) from error
                malformed.append((low, record))

    def _malformed(self, block: LineBlock, index: int, error: str) -> Malformed:
        offset = block.offset + int(block.starts[index])
        count = self._blocks.newlines_before(offset, self._lines_known)
        self._lines_known = (offset, count)
        text = block.line(index).decode("utf-8", "backslashreplace")
        return Malformed(self._part.path, count + 1, text, error)


def decoded(piece: bytes) -> None:
    """Raises Unreadable unless the bytes are UTF-8."""
    try:
        piece.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8: {error.reason} (byte 0x{piece[error.start]:02x})") from error


def refuse_nulls(records: pa.RecordBatch) -> pa.RecordBatch:
    """Raises Unreadable for a null in a NOT NULL column."""
    for field, column in zip(records.schema, records.columns, strict=True):
        if not field.nullable and column.null_count:
            raise Unreadable(f"column {field.name!r} is missing, but the schema says NOT NULL")
    return records
