"""When records happened: the columns that say so, as milliseconds."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutwater.errors import DataError, SchemaError
from cutwater.flow.arrow import Array
from cutwater.flow.watermarks import Milliseconds
from cutwater.schema import require_columns

Times = npt.NDArray[np.int64]

FIRST_TIME: Milliseconds = -62_135_596_800_000
LAST_TIME: Milliseconds = 253_402_300_799_999
"""The years 1 to 9999, which a datetime can show. A long of micro- or nanoseconds of our days is beyond them."""

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class EventTime:
    """The latest of ``columns`` (a joined record has two), moved by ``shift`` (a window's result belongs before its end)."""

    columns: tuple[str, ...]
    shift: Milliseconds = 0

    def check(self, schema: pa.Schema, where: str) -> None:
        """SchemaError unless each is a column that can hold a time."""
        require_columns(schema, self.columns, where)
        for name in self.columns:
            data_type = schema.field(name).type
            if not (pa.types.is_timestamp(data_type) or pa.types.is_integer(data_type)):
                raise SchemaError(
                    f"{where}: the time column {name!r} is {data_type}; a timestamp, or a long of milliseconds, is needed."
                )

    def is_kept(self, before: pa.Schema, after: pa.Schema) -> bool:
        """Whether records of ``after`` still say when they happened."""
        return all(
            name in after.names and after.field(name).type.equals(before.field(name).type) for name in self.columns
        )

    def of(self, batch: pa.RecordBatch, where: str) -> Times:
        """Of each record, in milliseconds. DataError for one that has none."""
        times = self._of_column(batch, self.columns[0], where)
        for name in self.columns[1:]:
            times = np.maximum(times, self._of_column(batch, name, where))
        return times

    def _of_column(self, batch: pa.RecordBatch, name: str, where: str) -> Times:
        times = _milliseconds(batch.column(name), name, self.shift, where)
        return times + self.shift if self.shift else times


def _milliseconds(column: Array, name: str, shift: Milliseconds, where: str) -> Times:
    if column.null_count:
        raise DataError(
            f"{where}: {column.null_count} of {len(column)} records have no value in the time column {name!r}. "
            f"Filter them out before, or give them one."
        )
    _refuse_what_no_calendar_has(column, name, shift, where)
    if isinstance(column.type, pa.TimestampType):
        # Down to the millisecond, also before 1970, where a cast would round up.
        column = pc.floor_temporal(column, unit="millisecond") if column.type.unit in ("us", "ns") else column
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return column.cast(pa.int64()).to_numpy()


def _refuse_what_no_calendar_has(column: Array, name: str, shift: Milliseconds, where: str) -> None:
    """It would be in no window, or in one that wrapped around, and its watermark would make all others late."""
    moment = isinstance(column.type, pa.TimestampType)
    numbers = (column.cast(pa.int64()) if moment else column).to_numpy()
    per_second = _PER_SECOND[column.type.unit] if moment else 1_000
    for value in (int(numbers.min()), int(numbers.max())) if len(numbers) else ():
        if not FIRST_TIME <= value * 1_000 // per_second + shift <= LAST_TIME:
            raise DataError(
                f"{where}: a record has {value} in the time column {name!r}; a {column.type} in the years 1 to 9999 is wanted."
                if moment
                else f"{where}: a record has {value} in the time column {name!r}; milliseconds since the epoch are wanted, in the "
                f"years 1 to 9999. Divide microseconds by 1,000 and nanoseconds by 1,000,000 before with_timestamps."
            )
