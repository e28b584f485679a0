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
        times = _milliseconds(batch.column(self.columns[0]), self.columns[0], where)
        for name in self.columns[1:]:
            times = np.maximum(times, _milliseconds(batch.column(name), name, where))
        return times + self.shift if self.shift else times


def _milliseconds(column: Array, name: str, where: str) -> Times:
    if column.null_count:
        raise DataError(
            f"{where}: {column.null_count} of {len(column)} records have no value in the time column {name!r}. "
            f"Filter them out before, or give them one."
        )
    if isinstance(column.type, pa.TimestampType):
        # Down to the millisecond, also before 1970, where a cast would round up.
        column = pc.floor_temporal(column, unit="millisecond") if column.type.unit in ("us", "ns") else column
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return column.cast(pa.int64()).to_numpy()
