"""What changed in a table since a checkpoint, as a file of rows: how its rows stand to those of the files before it.

The schema of such a file says by which columns a row is the same as an earlier one, which it then replaces, and which buckets
of earlier rows are gone altogether. A row whose key group is turned over (``~group``, so that it is negative) only takes the
place of earlier ones and holds nothing itself. Rows of one file never replace each other.
"""

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_HEADER = b"cutwater.changes"

KeyGroups = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Header:
    """``identity``: empty if rows are only ever added. ``bucket``: the column whose value may be among those ``dropped``."""

    identity: tuple[str, ...] = ()
    bucket: str | None = None
    dropped: tuple[int, ...] = ()


def with_header(schema: pa.Schema, header: Header) -> pa.Schema:
    told = {"identity": header.identity, "bucket": header.bucket, "dropped": header.dropped}
    return schema.with_metadata({_HEADER: json.dumps(told).encode()})


def header_of(schema: pa.Schema) -> Header:
    """Of a file without one, such as the first of a table: it has nothing to do with other files."""
    told = (schema.metadata or {}).get(_HEADER)
    if told is None:
        return Header()
    value = json.loads(told)
    return Header(tuple(value["identity"]), value["bucket"], tuple(value["dropped"]))


def true_groups(stored: KeyGroups) -> KeyGroups:
    """The key groups of all rows, gone or not."""
    return np.where(stored < 0, ~stored, stored)
