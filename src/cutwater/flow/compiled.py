"""Numba kernels: compiled ahead from explicit signatures, cached on disk. Most run without the GIL."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

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
