"""Keys as RocksDB has them: key group, namespace (a pane or bucket; not every state has one), the encoded key.

Big endian, so that what belongs together stands together. No encoded key begins another one of the same columns.
"""

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.flow.hashing import hash_arrays, key_groups
from cutwater.state.encoded_keys import decode, encode
from cutwater.state.pointers import address

_SIGN = 1 << 63
_GROUP = struct.Struct(">H")
_NAMESPACE = struct.Struct(">Q")
_GROUP_AND_NAMESPACE = struct.Struct(">HQ")

GROUP_BYTES = _GROUP.size
NAMESPACE_BYTES = _NAMESPACE.size

Numbers = npt.NDArray[np.int64]


def groups_of(columns: Sequence[Array], records: int, max_parallelism: int) -> npt.NDArray[np.int32]:
    return key_groups(hash_arrays(columns, records), max_parallelism)


def stored_keys(
    columns: Sequence[Array], groups: npt.NDArray[np.int32], namespaces: Numbers | None = None
) -> list[bytes]:
    encoded, starts = encode(columns, len(groups))
    raw, ends = encoded.tobytes(), starts.tolist()
    if namespaces is None:
        heads = map(_GROUP.pack, groups.tolist())
    else:
        heads = map(prefix_of, groups.tolist(), namespaces.tolist())
    return [head + raw[start:end] for head, start, end in zip(heads, ends[:-1], ends[1:], strict=True)]


def prefix_of(group: int, namespace: int) -> bytes:
    return _GROUP_AND_NAMESPACE.pack(group, namespace + _SIGN)


def namespace_key(namespace: int) -> bytes:
    return _NAMESPACE.pack(namespace + _SIGN)


def namespace_of(key: bytes) -> int:
    """The inverse of ``namespace_key``."""
    number: int = _NAMESPACE.unpack_from(key)[0]
    return number - _SIGN


def key_columns(keys: Sequence[bytes], schema: pa.Schema, *, namespace: bool = False) -> tuple[list[Array], Array]:
    """The columns of the keys, as ``schema`` has them, and their key groups."""
    raw = np.frombuffer(b"".join(keys), np.uint8)
    starts = np.zeros(len(keys) + 1, np.int64)
    np.cumsum([len(key) for key in keys], out=starts[1:])
    head = GROUP_BYTES + (NAMESPACE_BYTES if namespace else 0)
    columns = decode(starts[:-1] + head + address(raw), schema)
    groups = raw[starts[:-1]].astype(np.int32) << 8 | raw[starts[:-1] + 1]
    return [fitted(column, field.type) for column, field in zip(columns, schema, strict=True)], pa.array(groups)


def namespaces_of(keys: Sequence[bytes]) -> Numbers:
    heads = b"".join([key[GROUP_BYTES : GROUP_BYTES + NAMESPACE_BYTES] for key in keys])
    return (np.frombuffer(heads, ">u8").astype(np.uint64) ^ np.uint64(_SIGN)).view(np.int64)


def fitted(column: Array, data_type: pa.DataType) -> Array:
    """What was decoded has plain types; a column may be declared as a dictionary."""
    return column if column.type == data_type else column.cast(data_type)
