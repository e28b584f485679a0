"""Arguments that a call does not take: told as an error of ours, with what may be written."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, isclass, isfunction, signature
from types import NoneType
from typing import Any, TypeVar, cast

from cutwater.errors import ConfigError
from cutwater.schema import did_you_mean

C = TypeVar("C", bound=Callable[..., Any])
T = TypeVar("T", bound=type)


def refuse_others(
    name: str, takes: Signature, args: Sequence[Any], kwargs: Mapping[str, Any], *, found: str = "cw."
) -> None:
    """ConfigError unless what is called ``name``, and written behind ``found``, can be called like that."""
    try:
        takes.bind(*args, **kwargs)
    except TypeError as error:
        unknown = [each for each in kwargs if each not in takes.parameters]
        wrong = (
            f"no argument {unknown[0]!r}{did_you_mean(unknown[0], list(takes.parameters))}" if unknown else str(error)
        )
        plain = list(map(_as_written, takes.parameters.values()))
        written = takes.replace(parameters=plain, return_annotation=takes.empty)
        raise ConfigError(f"{name}: {wrong}; write {found}{name}{written}.") from None


def takes_no_others(of: C, *, found: str = "cw.") -> C:
    """For a function or a class that users call: what it does not take raises ConfigError, where Python's TypeError would name
    no module of ours. ``found`` is what users write before its name."""
    takes, name = signature(of), of.__name__
    call = cast(Any, of).__init__ if isclass(of) else of

    @wraps(call)
    def checked(*args: Any, **kwargs: Any) -> Any:
        refuse_others(name, takes, args[1:] if isclass(of) else args, kwargs, found=found)
        return call(*args, **kwargs)

    if isclass(of):
        cast(Any, of).__init__ = checked
        return of
    return cast(C, checked)


def methods_take_no_others(of: T) -> T:
    """For a class whose methods users call: the same for each of them. How the class itself is called is left as it is."""
    for name, method in list(vars(of).items()):
        if isfunction(method) and not name.startswith("_"):
            setattr(of, name, _checked_method(method))
    return of


def _checked_method(method: Callable[..., Any]) -> Callable[..., Any]:
    takes = signature(method)
    # Users write no self.
    shown = takes.replace(parameters=list(takes.parameters.values())[1:])

    @wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        refuse_others(method.__name__, shown, args, kwargs, found=".")
        return method(self, *args, **kwargs)

    return checked


class _Default:
    def __repr__(self) -> str:
        return "..."


def _as_written(parameter: Parameter) -> Parameter:
    """Without types, and with defaults that can be written in a word."""
    is_short = parameter.default is Parameter.empty or isinstance(parameter.default, str | int | float | NoneType)
    default = parameter.default if is_short else _Default()
    return parameter.replace(annotation=Parameter.empty, default=default)
