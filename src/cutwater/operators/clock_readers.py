"""Whether a function of the user looks at the clock, as far as its class shows."""

from collections.abc import Iterator
from types import CodeType, FunctionType

_CLOCK = frozenset({"now", "processing_time"})
"""``ctx.now`` and ``ctx.timers.processing_time``, and ``datetime.now`` as well."""


def reads_clock(function: object) -> bool:
    """By the names in the code of its class and of those that it stands on. What it calls elsewhere nobody can see."""
    own = [
        each for each in type(function).__mro__ if each is not object and not each.__module__.startswith("cutwater.")
    ]
    return any(_CLOCK.intersection(code.co_names) for each in own for code in _code_of(each))


def _code_of(its_class: type) -> Iterator[CodeType]:
    for value in vars(its_class).values():
        found = getattr(value, "__func__", value)  # a static method's
        if isinstance(found, FunctionType):
            yield from _with_inner(found.__code__)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
