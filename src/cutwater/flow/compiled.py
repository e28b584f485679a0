"""Numba kernels: compiled ahead from explicit signatures, cached on disk. Most run without the GIL."""

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable
from numbers import Number
from types import FunctionType
from typing import ParamSpec, TypeVar, cast

import numba
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic

P = ParamSpec("P")
R = TypeVar("R")

_TYPES = ("boolean", "uint8", "int32", "int64", "uint64", "float64", "void")


def kernel(*signatures: str, keeps_interpreter: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile when the module is imported (or load from the cache), so that no subtask compiles while it runs.

    Signatures take C-contiguous arrays; ``ro(t)`` in one stands for an array that may be read-only, as Arrow's are. Other threads
    run meanwhile, unless it ``keeps_interpreter``: for what is done sooner than it would be given back.
    """
    spelled = [_resolve(signature) for signature in signatures]

    def compile_ahead(function: Callable[P, R]) -> Callable[P, R]:
        # The cache compares only the function's own file: without this, what it takes from other modules would stay as it was.
        function.__qualname__ += f"_{_digest_of_parts(cast(FunctionType, function))}"
        return cast(
            Callable[P, R], numba.njit(spelled, nogil=not keeps_interpreter, cache=True, error_model="numpy")(function)
        )

    return compile_ahead


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """A piece of several kernels: compiled into each of them."""
    return cast(Callable[P, R], numba.njit(nogil=True, inline="always", error_model="numpy")(function))


def _resolve(signature: str) -> object:
    names = {name: getattr(numba.types, name) for name in _TYPES}
    names["ro"] = lambda of: numba.types.Array(of, 1, "C", readonly=True)
    names["rw"] = lambda of: numba.types.Array(of, 1, "C")
    return eval(signature, {"__builtins__": {}}, names)


def _digest_of_parts(function: FunctionType) -> str:
    """Of all that is compiled into the function from outside: numbers, intrinsics, and functions with theirs."""
    parts = "\n".join(f"{name} = {part}" for name, part in sorted(_parts(function).items()))
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


@functools.cache
def _parts(function: FunctionType) -> dict[str, str]:
    parts: dict[str, str] = {}
    found = inspect.getclosurevars(function)
    for name, value in {**found.globals, **found.nonlocals}.items():
        place = (
            f"{function.__module__}.{function.__name__}.{name}"  # another function may have another part of that name
        )
        match value:
            case Dispatcher() if value.py_func is not function:
                parts |= {place: inspect.getsource(value.py_func), **_parts(value.py_func)}
            case _Intrinsic():
                # It may be one of many that one piece of code made: all of that counts.
                parts[place] = inspect.getsource(sys.modules[value._defn.__module__])
            case Number():
                parts[place] = repr(value)
    return parts
