"""Functions that users give: whether they can be called as they will be is told where they are given."""

import inspect
from collections.abc import Iterable
from types import FunctionType, MethodType
from typing import Any

from cutwater.errors import ConfigError


def checked_function(method: str, fn: Any, *parameters: str, name: str | None = None) -> Any:
    """``fn``, which is called with ``parameters``; ConfigError if it cannot be, as far as it can be told: of what is written with
    def or lambda, methods among it."""
    if not callable(fn):
        raise ConfigError(f"{method}: {fn!r} is not a function.")
    if isinstance(fn, FunctionType | MethodType) and not hasattr(
        fn, "__signature__"
    ):  # which may be that of what it wraps
        signature = inspect.signature(fn, follow_wrapped=False)  # what is called is the wrapper
        try:
            signature.bind(*parameters)
        except TypeError:
            wanted = "these parameters" if parameters else "no parameters"
            called = name or "fn"
            raise ConfigError(
                f"{method}: {name or fn.__name__}{signature} is called as {called}({', '.join(parameters)}); give it {wanted}."
            ) from None
    return fn


def check_methods(method: str, instance: Any, base: type, names: Iterable[str]) -> None:
    """Those of ``names`` that the class of ``instance`` has in place of its ``base``'s are called as those are."""
    for name in names:
        own = getattr(instance, name)
        if getattr(type(instance), name) is not getattr(base, name):
            _, *parameters = inspect.signature(getattr(base, name)).parameters
            checked_function(method, own, *parameters, name=f"{type(instance).__name__}.{name}")
