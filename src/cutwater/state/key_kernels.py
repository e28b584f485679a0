"""Keys as bytes: each column a byte that says whether it is null, then its value (strings with their length before)."""

import numpy as np
import numpy.typing as npt

from cutwater.flow.compiled import inlined, kernel
from cutwater.state.pointers import load_byte, load_word, store_byte, store_word

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.int64]


@inlined
def copy_bytes(to, at, size):  # type: ignore[no-untyped-def]
    """By words as far as they go: keys are short, and a loop over bytes costs more than all else that is done to them."""
    done = 0
    while done + 8 <= size:
        store_word(to + done, load_word(at + done))
        done += 8
    while done < size:
        store_byte(to + done, load_byte(at + done))
        done += 1


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
            for b in range(4):
                out[at + 1 + b] = np.uint8((size >> (8 * b)) & 255)
            copy_bytes(out.ctypes.data + at + 5, data.ctypes.data + start, size)
            cursor[i] = at + 5 + size


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
            for b in range(4):
                size |= np.int64(load_byte(cursor[i] + 1 + b)) << (8 * b)
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
