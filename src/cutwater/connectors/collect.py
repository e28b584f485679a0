"""Rows that come back to the program as ``result.rows(name)``."""

from cutwater.connectors.sink import Delivery, Sink
from cutwater.errors import ConfigError


class Collect(Sink):
    """A mark for the runtime, which moves the rows itself: they are part of checkpoints, so each comes back once."""

    delivery = Delivery.EXACTLY_ONCE

    def __init__(self, name: str) -> None:
        if not name:
            raise ConfigError(f"collect: name={name!r}; a name is needed, to ask for with result.rows(name)")
        self.name = name

    def describe(self) -> str:
        return f"collect({self.name!r})"
