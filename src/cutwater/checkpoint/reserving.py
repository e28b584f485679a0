"""From an occasion to an id: requests that wait for their turn, when the next one is due, and the one that waits for its id."""

from collections.abc import Callable
from datetime import timedelta

from cutwater.checkpoint import commands as do
from cutwater.checkpoint.events import RequestId
from cutwater.checkpoint.requests import Reservation, WaitingRequests
from cutwater.checkpoint.trigger import Occasion
from cutwater.config import Checkpointing

_LONGEST_PAUSE_BEFORE_FINAL_RETRY = timedelta(seconds=1)


class Reserving:
    """``waiting`` is asked for an id one at a time. Times are on the clock of ``now``."""

    def __init__(self, command: Callable[[do.Command], None]) -> None:
        self._do = command
        self.requests = WaitingRequests()
        self.waiting: Reservation | None = None
        self.periodic_at = 0.0
        self.retry_final_at = 0.0

    def wait_an_interval(self, settings: Checkpointing, now: float) -> None:
        self.periodic_at = now + settings.interval.total_seconds()

    def pause_before_final_retry(self, settings: Checkpointing, now: float) -> None:
        pause = min(settings.interval, _LONGEST_PAUSE_BEFORE_FINAL_RETRY)
        self.retry_final_at = now + pause.total_seconds()

    def ask_for_id(self, occasion: Occasion, settings: Checkpointing, now: float) -> Reservation:
        if occasion is Occasion.PERIODIC:
            self.wait_an_interval(settings, now)
        self.waiting = self.requests.take_for(occasion, now, now + settings.timeout.total_seconds())
        self._do(do.ReserveId(self.waiting.kind))
        return self.waiting

    def take(self) -> Reservation | None:
        """The storage has answered."""
        waiting, self.waiting = self.waiting, None
        return waiting

    def go_on_without_requests(self, reservation: Reservation, settings: Checkpointing, now: float) -> None:
        """It failed because the storage stays silent. Should the id come after all, its checkpoint is taken for its own sake;
        nobody waits for it any more."""
        reservation.requests, reservation.expires_at = [], now + settings.timeout.total_seconds()
        self.waiting = reservation

    def withdraw(self, request: RequestId, reason: str) -> bool:
        """Whether it stood here, and not with a checkpoint that is under way."""
        if not self.requests.withdraw(request):
            if self.waiting is None or request not in self.waiting.requests:
                return False
            self.waiting.requests.remove(request)
        self._do(do.FailRequest(request, reason))
        return True

    def refuse_all(self, reason: str) -> None:
        """Whoever still waits for a turn."""
        for request in self.requests.take_all():
            self._do(do.FailRequest(request, reason))
