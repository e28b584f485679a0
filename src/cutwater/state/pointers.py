"""Loads and stores by address inside kernels: a table is many small arrays, and numba cannot index a list of them quickly.

Who passes an address keeps the array behind it alive for the time of the call.
"""

from typing import Any

import numba
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import carray, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import intrinsic


def address(array: npt.NDArray[Any]) -> int:
    """Where the data of ``array`` begins."""
    return int(array.__array_interface__["data"][0])


def _accessors(numba_type: Any, llvm_type: Any) -> tuple[Any, Any]:
    @intrinsic
    def load(_context: Any, at: Any) -> Any:
        def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.load(builder.inttoptr(arguments[0], llvm_type.as_pointer()))

        return numba_type(types.int64), generate

    @intrinsic
    def store(_context: Any, at: Any, value: Any) -> Any:
        def generate(target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            builder.store(arguments[1], builder.inttoptr(arguments[0], llvm_type.as_pointer()))
            return target.get_dummy_value()

        return types.void(types.int64, numba_type), generate

    return load, store


load_int, store_int = _accessors(types.int64, ir.IntType(64))
load_word, store_word = _accessors(types.uint64, ir.IntType(64))
load_float, store_float = _accessors(types.float64, ir.DoubleType())
load_half, store_half = _accessors(types.uint32, ir.IntType(32))
load_byte, store_byte = _accessors(types.uint8, ir.IntType(8))


def _prefetch(_context: Any, at: Any) -> Any:
    """Ask for the cache line at an address, which may be any: nothing is read or written."""

    def generate(target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        signature = ir.FunctionType(ir.VoidType(), [pointer, *[ir.IntType(32)] * 3])
        function = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
        hints = [ir.Constant(ir.IntType(32), hint) for hint in (1, 3, 1)]  # for writing, keep close, data
        builder.call(function, [builder.inttoptr(arguments[0], pointer), *hints])
        return target.get_dummy_value()

    return types.void(types.int64), generate


prefetch: Any = intrinsic(_prefetch)


def _fence(_context: Any) -> Any:
    """What was written before it is seen by other threads no later than what is written behind it; likewise for reads."""

    def generate(target: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        builder.fence("acq_rel")
        return target.get_dummy_value()

    return types.void(), generate


fence: Any = intrinsic(_fence)


def _array_at(number_type: Any, bits: int) -> Any:
    @intrinsic
    def pointer(_context: Any, at: Any) -> Any:
        def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())

        return types.CPointer(number_type)(types.int64), generate  # type: ignore[no-untyped-call]

    to_pointer: Any = pointer

    @numba.njit(nogil=True, inline="always")
    def array_at(at, size):  # type: ignore[no-untyped-def]
        return carray(to_pointer(at), (size,))

    return array_at


int64_at, int32_at, int16_at, int8_at = (
    _array_at(number_type, bits)
    for number_type, bits in ((types.int64, 64), (types.int32, 32), (types.int16, 16), (types.int8, 8))
)
"""Arrays by address: loops over them are vectorised, which loads and stores by address are not."""
