"""Keys as RocksDB has them: key group, namespace (a pane or bucket; not every state has one), the encoded key, a number.

Big endian, so that what belongs together stands together. No encoded key begins another one of the same columns.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutwater.flow.arrow import Array
from cutwater.flow.hashing import hash_arrays, key_groups
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.encoded_keys import apart, decode, encode, joined
from cutwater.state.key_kernels import put_each
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
    columns: Sequence[Array],
    groups: npt.NDArray[np.int32],
    namespaces: Numbers | None = None,
    numbers: Numbers | None = None,
) -> list[bytes]:
    return KeyBytes.of(columns, groups, namespaces, numbers).apart()


def stored_keys_in_order(
    columns: Sequence[Array],
    groups: npt.NDArray[np.int32],
    namespaces: Numbers | None = None,
    numbers: Numbers | None = None,
) -> tuple[list[bytes], Numbers]:
    """As RocksDB orders them, and which of them stands where: it reads and writes neighbours faster."""
    stored = KeyBytes.of(columns, groups, namespaces, numbers)
    keys, order = stored.apart(), stored.sorted()
    return [keys[i] for i in order.tolist()], order


@dataclass(frozen=True, slots=True)
class KeyBytes:
    """Many keys one behind the other."""

    whole: Bytes
    starts: Numbers
    """Where each begins, and the last ends."""
    tail: int
    """So many bytes of each are its number."""

    @classmethod
    def of(
        cls,
        columns: Sequence[Array],
        groups: npt.NDArray[np.int32],
        namespaces: Numbers | None = None,
        numbers: Numbers | None = None,
    ) -> "KeyBytes":
        """``numbers`` ascend: by them those that are otherwise alike are in order."""
        head = GROUP_BYTES + (0 if namespaces is None else NAMESPACE_BYTES)
        tail = 0 if numbers is None else _NUMBER.size
        whole, starts = encode(columns, len(groups), head=head, tail=tail)
        put_each(starts[:-1], 0, groups.astype(">u2").view(np.uint8), GROUP_BYTES, whole)
        if namespaces is not None:
            unsigned = (namespaces.view(np.uint64) ^ np.uint64(_SIGN)).astype(">u8").view(np.uint8)
            put_each(starts[:-1], GROUP_BYTES, unsigned, NAMESPACE_BYTES, whole)
        if numbers is not None:
            put_each(starts[1:], -tail, numbers.astype(">u8").view(np.uint8), tail, whole)
        return cls(whole, starts, tail)

    @classmethod
    def joined(cls, parts: Sequence["KeyBytes"]) -> "KeyBytes":
        """One part at least, all of the same table."""
        if len(parts) == 1:
            return parts[0]
        begins = np.cumsum([0, *(len(part.whole) for part in parts)])
        starts = [part.starts[:-1] + begin for part, begin in zip(parts, begins[:-1].tolist(), strict=True)]
        return cls(
            np.concatenate([part.whole for part in parts]), np.concatenate([*starts, begins[-1:]]), parts[0].tail
        )

    def apart(self) -> list[bytes]:
        return apart(self.whole, self.starts)

    def order(self) -> Numbers | None:
        """Which of the keys comes first in RocksDB, and so on; None if they are in order, as what was read from one is."""
        keys = self._as_array()
        is_in_order = pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py() is not False
        return None if is_in_order else self.sorted()

    def sorted(self) -> Numbers:
        records = len(self.starts) - 1
        whole_width = len(self.whole) // max(records, 1)
        width = whole_width - self.tail
        if records and 8 <= width <= 24 and (np.diff(self.starts) == whole_width).all():
            # As two or three numbers each: several times as fast, and that is how keys of one number are. Those that are alike
            # stay as they come.
            keys = self.whole.reshape(records, whole_width)
            numbers = [
                np.ascontiguousarray(keys[:, at : at + 8]).view(">u8").ravel().astype(np.uint64)
                for at in sorted({0, min(8, width - 8), width - 8}, reverse=True)
            ]
            return np.lexsort(numbers)
        order: Numbers = pc.sort_indices(self._as_array()).to_numpy().astype(np.int64)
        return order

    def _as_array(self) -> Array:
        buffers: list[pa.Buffer | None] = [None, pa.py_buffer(self.starts.data), pa.py_buffer(self.whole.data)]
        return pa.Array.from_buffers(pa.large_binary(), len(self.starts) - 1, buffers)


def group_bounds(groups: KeyGroupRange) -> tuple[bytes, bytes]:
    """Where the keys of these groups begin, and where those of later ones do."""
    return groups.first.to_bytes(GROUP_BYTES, "big"), (groups.last + 1).to_bytes(GROUP_BYTES, "big")


def prefix_of(group: int, namespace: int) -> bytes:
    return _GROUP_AND_NAMESPACE.pack(group, namespace + _SIGN)


def prefix_parts(prefix: bytes) -> tuple[int, int]:
    """Key group and namespace."""
    group, namespace = _GROUP_AND_NAMESPACE.unpack(prefix)
    return group, namespace - _SIGN


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
