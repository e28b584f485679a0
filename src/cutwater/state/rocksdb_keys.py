"""Keys as RocksDB has them: key group, namespace (a pane or bucket; not every state has one), the encoded key, a number.

Big endian, so that what belongs together stands together. No encoded key begins another one of the same columns.
"""

import struct
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutwater.flow.arrow import Array
from cutwater.flow.hashing import hash_arrays, key_groups
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.encoded_keys import apart, decode, encode, joined
from cutwater.state.pointers import address

_SIGN = 1 << 63
_NUMBER = struct.Struct(">Q")
_GROUP_AND_NAMESPACE = struct.Struct(">HQ")

GROUP_BYTES = 2
NAMESPACE_BYTES = 8
PREFIX_BYTES = GROUP_BYTES + NAMESPACE_BYTES

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


def groups_of(columns: Sequence[Array], records: int, max_parallelism: int) -> npt.NDArray[np.int32]:
    return key_groups(hash_arrays(columns, records), max_parallelism)


def stored_keys(
    columns: Sequence[Array], groups: npt.NDArray[np.int32], namespaces: Numbers | None = None
) -> list[bytes]:
    return apart(*_stored(columns, groups, namespaces))


def stored_keys_in_order(
    columns: Sequence[Array], groups: npt.NDArray[np.int32], namespaces: Numbers | None = None
) -> tuple[list[bytes], Numbers]:
    """As RocksDB orders them, and which of them stands where: it reads and writes neighbours faster."""
    whole, starts = _stored(columns, groups, namespaces)
    order = _order(whole, starts)
    keys = apart(whole, starts)
    return [keys[i] for i in order.tolist()], order


def key_order(
    columns: Sequence[Array], groups: npt.NDArray[np.int32], namespaces: Numbers | None = None
) -> Numbers | None:
    """Which of the keys comes first in RocksDB, and so on; None if they are in order, as what was read from one is."""
    whole, starts = _stored(columns, groups, namespaces)
    keys = _as_array(whole, starts)
    is_in_order = pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py() is not False
    return None if is_in_order else _order(whole, starts)


def _stored(
    columns: Sequence[Array], groups: npt.NDArray[np.int32], namespaces: Numbers | None
) -> tuple[Bytes, Numbers]:
    head = GROUP_BYTES + (0 if namespaces is None else NAMESPACE_BYTES)
    whole, starts = encode(columns, len(groups), head=head)
    heads = np.empty((len(groups), head), np.uint8)
    heads[:, :GROUP_BYTES] = groups.astype(">u2").view(np.uint8).reshape(-1, GROUP_BYTES)
    if namespaces is not None:
        unsigned = namespaces.view(np.uint64) ^ np.uint64(_SIGN)
        heads[:, GROUP_BYTES:] = unsigned.astype(">u8").view(np.uint8).reshape(-1, NAMESPACE_BYTES)
    for at in range(head):
        whole[starts[:-1] + at] = heads[:, at]
    return whole, starts


def _order(whole: Bytes, starts: Numbers) -> Numbers:
    records = len(starts) - 1
    width = len(whole) // max(records, 1)
    if records and 8 <= width <= 24 and (np.diff(starts) == width).all():
        # As two or three numbers each: several times as fast, and that is how keys of one number are.
        keys = whole.reshape(records, width)
        numbers = [
            np.ascontiguousarray(keys[:, at : at + 8]).view(">u8").ravel().astype(np.uint64)
            for at in sorted({0, min(8, width - 8), width - 8}, reverse=True)
        ]
        return np.lexsort(numbers)
    order: Numbers = pc.sort_indices(_as_array(whole, starts)).to_numpy().astype(np.int64)
    return order


def _as_array(whole: Bytes, starts: Numbers) -> Array:
    buffers: list[pa.Buffer | None] = [None, pa.py_buffer(starts.data), pa.py_buffer(whole.data)]
    return pa.Array.from_buffers(pa.large_binary(), len(starts) - 1, buffers)


def group_bounds(groups: KeyGroupRange) -> tuple[bytes, bytes]:
    """Where the keys of these groups begin, and where those of later ones do."""
    return groups.first.to_bytes(GROUP_BYTES, "big"), (groups.last + 1).to_bytes(GROUP_BYTES, "big")


def prefix_of(group: int, namespace: int) -> bytes:
    return _GROUP_AND_NAMESPACE.pack(group, namespace + _SIGN)


def prefix_parts(prefix: bytes) -> tuple[int, int]:
    """Key group and namespace."""
    group, namespace = _GROUP_AND_NAMESPACE.unpack(prefix)
    return group, namespace - _SIGN


def numbered(keys: Sequence[bytes], numbers: Iterable[int]) -> list[bytes]:
    """With a number behind each, by which those that are otherwise alike are in order."""
    return [key + tail for key, tail in zip(keys, map(_NUMBER.pack, numbers), strict=False)]


def number_of(key: bytes) -> int:
    number: int = _NUMBER.unpack_from(key, len(key) - _NUMBER.size)[0]
    return number


def groups_in(keys: Sequence[bytes]) -> npt.NDArray[np.int32]:
    return np.frombuffer(b"".join([key[:GROUP_BYTES] for key in keys]), ">u2").astype(np.int32)


def key_columns(keys: Sequence[bytes], schema: pa.Schema, *, namespace: bool = False) -> tuple[list[Array], Array]:
    """The columns of the keys, as ``schema`` has them, and their key groups."""
    raw, starts = joined(keys)
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
