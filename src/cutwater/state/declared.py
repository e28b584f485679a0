"""What users declare in the body of a function's class, and the common side of states: a declaration, not yet any state."""

from abc import ABCMeta
from inspect import signature
from typing import Any, NoReturn, TypeVar

import pyarrow as pa

from cutwater.arguments import refuse_others
from cutwater.errors import ConfigError

T = TypeVar("T")


def declared(function: type, kind: type[T]) -> dict[str, T]:
    """What is declared on a function's class and its bases, by attribute; a subclass's declaration replaces its base's."""
    found: dict[str, T] = {}
    for base in reversed(function.__mro__):
        for name, value in vars(base).items():
            found.pop(name, None)
            if isinstance(value, kind):
                found[name] = value
    return found


class _Declaring(ABCMeta):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """As always, but wrong arguments are told of the class that the user wrote, and not of the base that takes them."""
        takes = signature(cls.__init__)  # type: ignore[misc]  # a class's own, not an instance's
        own = takes.replace(parameters=list(takes.parameters.values())[1:])
        refuse_others(cls.__name__, own, args, kwargs)
        return super().__call__(*args, **kwargs)


class StateDeclaration(metaclass=_Declaring):
    """One declared state. On an instance that runs, a handle stands in its place, under the name of the attribute.

    The declaration knows no name: the same one may stand on several classes.
    """

    type: pa.DataType

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.type})"

    def _refuse(self, *_: Any) -> NoReturn:
        raise ConfigError(
            f"{self!r} is declared in the class body of a function and, inside of it, used as self.<its name>: "
            "what is set on the declaration itself would belong to no key and be in no checkpoint."
        )

    value = property(_refuse, _refuse)

    def _attribute_of(self, function: object) -> str:
        """``"Dedup.seen"``, for messages."""
        owner = type(function)
        return next(
            f"{owner.__name__}.{name}" for name, each in declared(owner, StateDeclaration).items() if each is self
        )
