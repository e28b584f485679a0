"""The parts of a simulated attempt that can move on their own, and how each takes one step."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from cutwater.flow.envelope import Row
from cutwater.flow.transport import Emit, RowReceiver, Step, Wait
from cutwater.subtask.relay import Relay
from cutwater.subtask.subtask import Subtask
from cutwater.testing.clock import ManualClock
from cutwater.testing.exchange import Exchange, Inlet


class WorkQueue:
    """Work that another thread would do, in order."""

    def __init__(self) -> None:
        self._work: deque[Callable[[], None]] = deque()

    def submit(self, work: Callable[[], None]) -> None:
        self._work.append(work)

    @property
    def ready(self) -> bool:
        return bool(self._work)

    def step(self) -> None:
        self._work.popleft()()


class BackgroundQueues:
    """A subtask's Background."""

    def __init__(self) -> None:
        self.snapshots = WorkQueue()
        self.commits = WorkQueue()

    def snapshot(self, work: Callable[[], None], pause: float = 0.0) -> None:
        self.snapshots.submit(work)

    def commit(self, work: Callable[[], None]) -> None:
        self.commits.submit(work)


class DriverQueue(WorkQueue):
    """The driver's IO. The work is one step and hearing of its result another: a crash may come between them."""

    def submit_io(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        def act() -> None:
            try:
                result: Any = work()
            except Exception as error:
                result = error
            # In front of later work, which begins only when this is known.
            self._work.appendleft(lambda: done(result))

        self.submit(act)


class SimulatedIO:
    def __init__(self, queue: DriverQueue) -> None:
        self._queue = queue

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self._queue.submit_io(work, done)


class ReaderActor:
    """Takes one row off the exchange, or tries again to place the one in hand."""

    def __init__(self, name: str, inlet: Inlet, receiver: RowReceiver) -> None:
        self.name = name
        self._inlet = inlet
        self._receiver = receiver

    def offer_in_hand(self) -> bool:
        """True when nothing is in hand any more."""
        if self._inlet.in_hand is not None and self._receiver.offer(self._inlet.in_hand):
            self._inlet.in_hand = None
        return self._inlet.in_hand is None

    def senders(self) -> list[int]:
        return self._inlet.waiting_senders() if self._inlet.in_hand is None else []

    @property
    def holds_row(self) -> bool:
        return self._inlet.in_hand is not None

    def take_from(self, sender: int) -> None:
        self._inlet.take(sender)
        self.offer_in_hand()


class LoopActor:
    """Pulls a subtask's steps; a row that finds no room suspends the loop, as ``yield`` does on Spark."""

    def __init__(
        self, name: str, subtask: Subtask, exchange: Exchange, level: int, partition: int, clock: ManualClock
    ) -> None:
        self.name = name
        self._subtask = subtask
        self._steps: Iterator[Step] | None = None
        self._exchange = exchange
        self._level = level
        self._partition = partition
        self._clock = clock
        self._outgoing: deque[Row] = deque()
        self._resting_until: float | None = None
        self._resting = False
        self.ended = False

    def ready(self) -> bool:
        if self.ended:
            return False
        if self._outgoing:
            return self._has_room(self._outgoing[0])
        if self._resting:
            woken = self._resting_until is not None and self._clock.monotonic() >= self._resting_until
            return woken or self._subtask.has_work()
        return True

    @property
    def resting_until(self) -> float | None:
        return self._resting_until if self._resting and not self._outgoing and not self.ended else None

    def step(self) -> None:
        if self._outgoing:
            row = self._outgoing.popleft()
            self._exchange.inlet(self._level + 1, row.target).put(self._partition, row)
            return
        self._resting = False
        if self._steps is None:
            self._steps = iter(self._subtask.steps())
        match next(self._steps, None):
            case None:
                self.ended = True
            case Emit(rows, _):
                self._outgoing.extend(rows)
            case Wait(seconds):
                self._resting = True
                self._resting_until = None if seconds is None else self._clock.monotonic() + seconds

    def _has_room(self, row: Row) -> bool:
        return self._exchange.inlet(self._level + 1, row.target).has_room(self._partition)


class RelayActor:
    """Passes one row on when there is room for it."""

    def __init__(self, name: str, relay: Relay, exchange: Exchange, level: int, partition: int) -> None:
        self.name = name
        self._relay = relay
        self._exchange = exchange
        self._level = level
        self._partition = partition
        self._outgoing: Row | None = None

    def ready(self) -> bool:
        if self._outgoing is not None:
            return self._exchange.inlet(self._level + 1, self._outgoing.target).has_room(self._partition)
        return bool(self._exchange.inlet(self._level, self._partition).waiting_senders())

    def step(self) -> None:
        if self._outgoing is not None:
            self._exchange.inlet(self._level + 1, self._outgoing.target).put(self._partition, self._outgoing)
            self._outgoing = None
            return
        inlet = self._exchange.inlet(self._level, self._partition)
        row = inlet.take(inlet.waiting_senders()[0])
        inlet.in_hand = None
        self._outgoing = self._relay.pass_on(row)
