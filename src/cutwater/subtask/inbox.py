"""What waits to be processed, in its order, and how much of it there may be."""

from collections import deque
from collections.abc import Iterator

from cutwater.flow.clock import Clock
from cutwater.flow.envelope import Row
from cutwater.subtask.cut_mark import CutMark
from cutwater.subtask.flow_rate import FlowRate
from cutwater.subtask.limits import FlowLimits

InboxItem = Row | CutMark


class Inbox:
    """Full when it holds what is processed in a short time. Whoever uses it holds the lock."""

    def __init__(self, limits: FlowLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._items: deque[InboxItem] = deque()
        self._rate = FlowRate()
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._items)

    @property
    def first(self) -> InboxItem:
        return self._items[0]

    @property
    def room(self) -> int:
        """Bytes at which it is full."""
        limits = self._limits
        least = min(limits.least_inbox_bytes, limits.inbox_bytes)
        return self._rate.bytes_in(limits.inbox_seconds, least=least, most=limits.inbox_bytes)

    @property
    def is_full(self) -> bool:
        return self.bytes >= self.room

    def append(self, item: InboxItem) -> None:
        self._items.append(item)
        if isinstance(item, Row):
            self.bytes += item.size

    def pop(self) -> InboxItem:
        item = self._items.popleft()
        if isinstance(item, Row):
            self.bytes -= item.size
            self._rate.add(item.size, self._clock.monotonic())
        return item

    def rows(self) -> Iterator[Row]:
        return (item for item in self._items if isinstance(item, Row))

    def drop_marks(self) -> None:
        """Cuts that wait their turn."""
        self._items = deque(self.rows())

    def clear(self) -> None:
        self._items.clear()
