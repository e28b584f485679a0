"""Senders that a subtask asked to stop, each for one reason or more: they go on when none is left."""

from collections.abc import Callable
from enum import Enum

from cutwater.flow.ids import ChannelId


class Why(Enum):
    HELD = "too many rows of the channel wait for the barriers of others"
    """Rule 12."""
    FLOODED = "an open gate, or a restore, let in more than the inbox may have"
    """Rule 15."""


class StoppedSenders:
    """``pause`` and ``resume`` tell the sender of a channel."""

    def __init__(self, pause: Callable[[ChannelId], None], resume: Callable[[ChannelId], None]) -> None:
        self._pause = pause
        self._resume = resume
        self._reasons: dict[ChannelId, set[Why]] = {}

    def stop(self, channel: ChannelId, why: Why) -> None:
        if channel not in self._reasons:
            self._reasons[channel] = set()
            self._pause(channel)
        self._reasons[channel].add(why)

    def let_go(self, channel: ChannelId, why: Why) -> None:
        reasons = self._reasons.get(channel)
        if reasons is None:
            return
        reasons.discard(why)
        if not reasons:
            del self._reasons[channel]
            self._resume(channel)

    def let_all_go(self, why: Why) -> None:
        for channel in sorted(self._reasons):
            self.let_go(channel, why)
