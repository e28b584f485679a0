"""Input that cannot be read: whether it fails the job, is dropped, or comes out of ``side_output("malformed")``."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import pyarrow as pa

from cutwater.errors import ConfigError, DataError

MALFORMED: Final = "malformed"
_FIELDS: "list[pa.Field[Any]]" = [
    pa.field("file", pa.string()),
    pa.field("line", pa.int64()),
    pa.field("text", pa.string()),
    pa.field("error", pa.string()),
]
MALFORMED_SCHEMA: Final = pa.schema(_FIELDS)
SHOWN_CHARACTERS = 300


class OnError(Enum):
    """What a malformed record does to the job."""

    FAIL = "fail"
    SKIP = "skip"
    SIDE = "side"

    @classmethod
    def of(cls, given: object, where: str) -> "OnError":
        for mode in cls:
            if given in (mode, mode.value):
                return mode
        raise ConfigError(f"{where}: on_error={given!r}; allowed are 'fail', 'skip' and 'side'")


@dataclass(frozen=True, slots=True)
class Malformed:
    """What could not be read. ``line`` counts from 1 in the file; where there are no lines, ``error`` says which part."""

    file: str
    line: int | None
    text: str
    error: str

    def as_error(self, where: str) -> DataError:
        told = f"{self.file}: {self.error}"
        if self.line is not None:
            shown = self.text if len(self.text) <= SHOWN_CHARACTERS else self.text[:SHOWN_CHARACTERS] + "..."
            told = f"{self.file}, line {self.line}: {self.error}\n    {shown}"
        return DataError(
            f"{where}: {told}\n"
            'Correct the file, or pass on_error="skip" to drop what cannot be read, '
            'or on_error="side" to get it from side_output("malformed").'
        )


def side_batch(records: Sequence[Malformed]) -> pa.RecordBatch:
    columns: list[pa.Array[Any]] = [
        pa.array([r.file for r in records], pa.string()),
        pa.array([r.line for r in records], pa.int64()),
        pa.array([r.text for r in records], pa.string()),
        pa.array([r.error for r in records], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=MALFORMED_SCHEMA)
