"""Keys as bytes: each column a byte that says whether it is null, then its value (strings with their length before)."""

import numpy as np
import numpy.typing as npt

from cutwater.flow.compiled import inlined, kernel
from cutwater.state.pointers import load_byte, load_half, load_word, store_byte, store_half, store_word

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.int64]


@inlined
def copy_bytes(to, at, size):  # type: ignore[no-untyped-def]
    """By words, the last of which may overlap the one before. Keys are short: a loop over bytes costs more than all else that is
    done to them."""
    if size >= 8:
        done = 0
        while done + 8 < size:
            store_word(to + done, load_word(at + done))
            done += 8
        store_word(to + size - 8, load_word(at + size - 8))
    elif size >= 4:
        store_half(to, load_half(at))
        store_half(to + size - 4, load_half(at + size - 4))
    elif size > 0:
        store_byte(to, load_byte(at))
        store_byte(to + size // 2, load_byte(at + size // 2))
        store_byte(to + size - 1, load_byte(at + size - 1))


@kernel("void(int64, ro(uint8), rw(int64))")
def add_fixed_sizes(width: int, valid: Bytes, sizes: Words) -> None:
    for i in range(len(sizes)):
        sizes[i] += 1 if len(valid) > 0 and valid[i] == 0 else 1 + width


@kernel("void(ro(int64), ro(uint8), rw(int64))")
def add_bytes_sizes(offsets: Words, valid: Bytes, sizes: Words) -> None:
    for i in range(len(sizes)):
        sizes[i] += 1 if len(valid) > 0 and valid[i] == 0 else 5 + offsets[i + 1] - offsets[i]


@kernel("void(ro(uint8), int64, ro(uint8), rw(int64), rw(uint8))")
def encode_fixed(data: Bytes, width: int, valid: Bytes, cursor: Words, out: Bytes) -> None:
    """Append a column of ``width`` bytes a value at each key's ``cursor``, and move it."""
    for i in range(len(cursor)):
        at = cursor[i]
        if len(valid) > 0 and valid[i] == 0:
            out[at] = 0
            cursor[i] = at + 1
        else:
            out[at] = 1
            copy_bytes(out.ctypes.data + at + 1, data.ctypes.data + i * width, width)
            cursor[i] = at + 1 + width


@kernel("void(ro(int64), ro(uint8), ro(uint8), rw(int64), rw(uint8))")
def encode_bytes(offsets: Words, data: Bytes, valid: Bytes, cursor: Words, out: Bytes) -> None:
    """The same for a column of strings."""
    for i in range(len(cursor)):
        at = cursor[i]
        if len(valid) > 0 and valid[i] == 0:
            out[at] = 0
            cursor[i] = at + 1
        else:
            start = offsets[i]
            size = offsets[i + 1] - start
            out[at] = 1
            store_half(out.ctypes.data + at + 1, np.uint32(size))
            copy_bytes(out.ctypes.data + at + 5, data.ctypes.data + start, size)
            cursor[i] = at + 5 + size


@kernel("void(ro(int64), int64, ro(uint8), int64, rw(uint8))")
def put_each(places: Words, beside: int, parts: Bytes, width: int, out: Bytes) -> None:
    """``parts`` of ``width`` bytes, each so many bytes behind its place."""
    for i in range(len(places)):
        copy_bytes(out.ctypes.data + places[i] + beside, parts.ctypes.data + i * width, width)


@kernel("void(rw(int64), int64, rw(uint8), rw(uint8))")
def decode_fixed(cursor: Words, width: int, out: Bytes, valid: Bytes) -> None:
    """Read a column back at each key's ``cursor``, here an address, and move it."""
    for i in range(len(cursor)):
        valid[i] = load_byte(cursor[i])
        cursor[i] += 1
        if valid[i]:
            copy_bytes(out.ctypes.data + i * width, cursor[i], width)
            cursor[i] += width


@kernel("void(ro(int64), rw(int64), rw(uint8))")
def decode_sizes(cursor: Words, offsets: Words, valid: Bytes) -> None:
    """Where each string will stand; the cursors stay, for ``decode_bytes``."""
    for i in range(len(cursor)):
        valid[i] = load_byte(cursor[i])
        size = np.int64(0)
        if valid[i]:
            size = np.int64(load_half(cursor[i] + 1))
        offsets[i + 1] = offsets[i] + size


@kernel("void(rw(int64), ro(int64), ro(uint8), rw(uint8))")
def decode_bytes(cursor: Words, offsets: Words, valid: Bytes, out: Bytes) -> None:
    for i in range(len(cursor)):
        if valid[i]:
            size = offsets[i + 1] - offsets[i]
            copy_bytes(out.ctypes.data + offsets[i], cursor[i] + 5, size)
            cursor[i] += 5 + size
        else:
            cursor[i] += 1
