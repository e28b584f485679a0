"""Hive folders: ``country=de/day=2024-01-01``. Written by sinks, read back by ``parquet_files``."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cutwater.errors import DataError

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
LONGEST_NAME_BYTES = 255
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")


def split_by(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each folder, in their order, without the columns that the folder's name holds."""
    rest = batch.drop_columns(list(columns))
    encoded = [_encoded(batch.column(name)) for name in columns]
    code = np.zeros(batch.num_rows, np.int64)
    for column in encoded:
        code = code * len(column.dictionary) + np.asarray(column.indices)
    _, first_rows, group, counts = np.unique(code, return_index=True, return_inverse=True, return_counts=True)
    grouped = rest.take(np.argsort(group, kind="stable"))
    begin = 0
    for first_row, count in zip(first_rows.tolist(), counts.tolist(), strict=True):
        values = [column.dictionary[column.indices[first_row].as_py()].as_py() for column in encoded]
        yield "/".join(map(folder_name, columns, values)), grouped.slice(begin, count)
        begin += count


def _encoded(column: "pa.Array[Any]") -> "pa.DictionaryArray[Any, Any]":
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    assert isinstance(encoded, pa.DictionaryArray)
    return encoded


def folder_name(column: str, value: Any) -> str:
    name = f"{_escaped(column)}={_escaped(_text(value))}"
    if len(name.encode()) > LONGEST_NAME_BYTES:
        raise DataError(f"partition_by: the folder {name[:80]}... would have more than {LONGEST_NAME_BYTES} bytes")
    return name


def partition_values(relative_path: str) -> dict[str, str | None]:
    """What the folders of a path say."""
    values: dict[str, str | None] = {}
    for part in relative_path.split("/")[:-1]:
        column, equals, value = part.partition("=")
        if equals:
            values[unquote(column)] = None if value == NO_VALUE else unquote(value)
    return values


def _text(value: Any) -> str:
    match value:
        case None | "":
            return NO_VALUE
        case bool():
            return str(value).lower()
        case datetime():
            return value.isoformat(sep=" ")
        case _:
            return str(value)


def _escaped(text: str) -> str:
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", text)
