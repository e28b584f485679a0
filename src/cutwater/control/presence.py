"""Who is connected, by what ZeroMQ's monitor and the packets' file descriptors tell. Pure: the time is given.

The monitor knows connections by file descriptor only, and its events and the packets come by two ways. The owner
takes packets first, then the monitor's events, and reports the events before the packets: whatever preceded a packet
is then known. A descriptor that is used again, or an event that overtakes, is put right by the next packet.
"""

from cutwater.flow.ids import SubtaskId


class Presence:
    """A subtask that does not come back within ``grace`` seconds is lost, unless it said goodbye."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._descriptor_of: dict[SubtaskId, int] = {}
        self._owner_of: dict[int, SubtaskId] = {}
        self._gone: set[int] = set()
        self._missing_since: dict[SubtaskId, float] = {}
        self._departed: set[SubtaskId] = set()

    def connected(self) -> set[SubtaskId]:
        return set(self._descriptor_of)

    def is_connected(self, subtask: SubtaskId) -> bool:
        return subtask in self._descriptor_of

    def accepted(self, descriptor: int) -> None:
        self._gone.discard(descriptor)

    def disconnected(self, descriptor: int, now: float) -> None:
        self._gone.add(descriptor)
        if (owner := self._owner_of.pop(descriptor, None)) is not None:
            del self._descriptor_of[owner]
            self._missing_since[owner] = now

    def heard(self, subtask: SubtaskId, descriptor: int, now: float) -> bool:
        """A packet of this subtask came through this descriptor. True if it speaks through a new connection."""
        if descriptor in self._gone:
            # Its last words, read after its end was seen.
            if subtask not in self._descriptor_of:
                self._missing_since.setdefault(subtask, now)
            return False
        if self._descriptor_of.get(subtask) == descriptor:
            return False
        if (former := self._owner_of.get(descriptor)) is not None:
            self._missing_since[former] = now
            del self._descriptor_of[former]
        if (older := self._descriptor_of.get(subtask)) is not None:
            del self._owner_of[older]
        self._descriptor_of[subtask] = descriptor
        self._owner_of[descriptor] = subtask
        self._missing_since.pop(subtask, None)
        return True

    def departed(self, subtask: SubtaskId) -> None:
        """It said goodbye: its end is no loss."""
        self._departed.add(subtask)

    def due(self) -> float | None:
        """When ``lost`` may have something to say."""
        first = min(self._missing_since.values(), default=None)
        return None if first is None else first + self._grace

    def lost(self, now: float) -> list[SubtaskId]:
        """The subtasks that are lost since the last call, each once per loss."""
        overdue = [subtask for subtask, since in self._missing_since.items() if since + self._grace <= now]
        for subtask in overdue:
            del self._missing_since[subtask]
        return [subtask for subtask in overdue if subtask not in self._departed]
