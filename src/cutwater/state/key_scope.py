"""Whose state is meant: the key that is being processed."""

from collections.abc import Callable
from typing import Any

from cutwater.errors import ConfigError
from cutwater.flow.watermarks import Milliseconds


class KeyScope:
    """The key whose state the handles of one function mean, and the clock that expiry goes by."""

    __slots__ = ("key", "now")

    key: Any
    """Not set while no key is being processed. Any value may be a key, also None."""

    def __init__(self, now: Callable[[], Milliseconds]) -> None:
        self.now = now

    def __getattr__(self, name: str) -> Any:
        # Only called for what is not set: in the good case the check costs nothing.
        if name != "key":
            raise AttributeError(name)
        raise ConfigError(
            "state and timers belong to the key that is being processed: use them in process and on_timer, not in open, close or "
            "process_broadcast, where there is no key"
        )
