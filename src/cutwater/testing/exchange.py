"""The exchange in one process: finite buffers between partitions, one iterator per consumer, as on Spark.

A consumer takes rows of its senders in any order, but each sender's in order, and a row it took and cannot place stands in
the way of all others: that is what Spark's single iterator does.
"""

from collections import deque
from dataclasses import dataclass, field

from cutwater.flow.envelope import Row


@dataclass(slots=True)
class Inlet:
    """What waits for one consumer, by sending partition."""

    capacity: int
    queues: dict[int, deque[Row]] = field(default_factory=dict)
    in_hand: Row | None = None

    def has_room(self, sender: int) -> bool:
        return len(self.queues.setdefault(sender, deque())) < self.capacity

    def put(self, sender: int, row: Row) -> None:
        self.queues.setdefault(sender, deque()).append(row)

    def waiting_senders(self) -> list[int]:
        return [sender for sender, rows in self.queues.items() if rows]

    def take(self, sender: int) -> Row:
        self.in_hand = self.queues[sender].popleft()
        return self.in_hand

    @property
    def rows(self) -> int:
        return sum(len(rows) for rows in self.queues.values()) + (self.in_hand is not None)


class Exchange:
    """Inlets of every partition of every level; level 0 has none."""

    def __init__(self, widths: list[int], capacity: int) -> None:
        self._inlets = [[Inlet(capacity) for _ in range(width)] for width in widths]

    def inlet(self, level: int, partition: int) -> Inlet:
        return self._inlets[level][partition]
