"""Whether a function of the user looks at the clock, as far as its class shows, and the functions that it was given."""

from collections.abc import Iterator
from functools import cached_property, partial
from itertools import chain
from types import CodeType, FunctionType, MethodType

_CLOCK = frozenset({"now", "processing_time"})
"""``ctx.now`` and ``ctx.timers.processing_time``, and ``datetime.now`` as well."""


def reads_clock(function: object) -> bool:
    """By the names in the code of its class and of those that it stands on, and of what its attributes are. What it calls
    elsewhere nobody can see."""
    own = [
        each for each in type(function).__mro__ if each is not object and not each.__module__.startswith("cutwater.")
    ]
    values = chain(*(vars(each).values() for each in own), getattr(function, "__dict__", {}).values())
    return any(_CLOCK.intersection(code.co_names) for value in values for code in _code_of(value))


def _code_of(value: object) -> Iterator[CodeType]:
    match value:
        case FunctionType():
            yield from _with_inner(value.__code__)
            yield from _code_of(getattr(value, "__wrapped__", None))  # what a decorator is written around
        case staticmethod() | classmethod() | MethodType():
            yield from _code_of(value.__func__)
        case property():
            yield from _code_of(value.fget)
        case cached_property() | partial():
            yield from _code_of(value.func)
        case _ if isinstance(value, type):
            pass
        case _:
            call = getattr(type(value), "__call__", None)  # noqa: B004 (its code is wanted)
            if isinstance(call, FunctionType):
                yield from _code_of(call)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
