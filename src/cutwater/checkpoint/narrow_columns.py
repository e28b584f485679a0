"""Integers of a stored batch in the narrowest type that holds them all: counts, numbers of key groups and most keys are small,
and every byte of a checkpoint is hashed, copied to the kernel, put on a disk and deleted again."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.compiled import inlined, kernel
from cutwater.state.pointers import address, int8_at, int16_at, int32_at, int64_at

_TYPES = {8: pa.int64(), 4: pa.int32(), 2: pa.int16(), 1: pa.int8()}
_NARROWED = {pa.int64(): 8, pa.int32(): 4}

Numbers = npt.NDArray[np.int64]


def narrowed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows; ``widened`` is its inverse."""
    columns, rows = batch.columns, batch.num_rows
    if rows == 0:
        return batch
    wide = [i for i, column in enumerate(columns) if column.type in _NARROWED and column.offset == 0]
    buffers = [np.frombuffer(memoryview(columns[i].buffers()[1]), np.uint8) for i in wide]  # type: ignore[arg-type]
    room = [np.empty(rows * _NARROWED[columns[i].type] // 2, np.uint8) for i in wide]
    bytes_each = np.array([_NARROWED[columns[i].type] for i in wide], np.int64)
    _narrow(
        rows,
        np.array([address(buffer) for buffer in buffers], np.int64),
        np.array([address(buffer) for buffer in room], np.int64),
        bytes_each,
    )
    for i, narrow, size in zip(wide, room, bytes_each.tolist(), strict=True):
        if size < _NARROWED[columns[i].type]:
            values = pa.py_buffer(narrow[: rows * size].data)
            columns[i] = pa.Array.from_buffers(_TYPES[size], rows, [columns[i].buffers()[0], values])
    fields = [field.with_type(column.type) for field, column in zip(batch.schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """As the table was declared."""
    return batch if batch.schema == schema else batch.cast(schema)


@inlined
def _bytes_needed(numbers):  # type: ignore[no-untyped-def]
    bits = np.int64(0)
    for i in range(len(numbers)):
        bits |= numbers[i] ^ (numbers[i] >> 63)
    return 1 if bits < 1 << 7 else 2 if bits < 1 << 15 else 4 if bits < 1 << 31 else 8


@inlined
def _copy(numbers, size, target):  # type: ignore[no-untyped-def]
    if size == 4:
        int32_at(target, len(numbers))[:] = numbers
    elif size == 2:
        int16_at(target, len(numbers))[:] = numbers
    else:
        int8_at(target, len(numbers))[:] = numbers


@kernel("void(int64, ro(int64), ro(int64), rw(int64))")
def _narrow(rows: int, wide: Numbers, narrow: Numbers, sizes: Numbers) -> None:
    """All columns in one call, by their addresses. ``sizes`` has the bytes of a number: those it takes, then those it needs,
    and unless that is the same, the numbers are then in ``narrow``. What stands at a null counts too."""
    for c in range(len(wide)):
        if sizes[c] == 8:
            longs = int64_at(wide[c], rows)
            needed = _bytes_needed(longs)
            if needed < 8:
                _copy(longs, needed, narrow[c])
        else:
            ints = int32_at(wide[c], rows)
            needed = _bytes_needed(ints)
            if needed < 4:
                _copy(ints, needed, narrow[c])
        sizes[c] = min(sizes[c], needed)
