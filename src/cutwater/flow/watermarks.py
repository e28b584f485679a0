"""How event time is counted, and the watermark of something that reads several inputs. Pure."""

from collections.abc import Hashable, Iterable, Mapping, Set
from typing import Generic, TypeVar

Milliseconds = int
"""Event time and watermarks: milliseconds since the epoch."""

MIN_WATERMARK: Milliseconds = -(2**63)
"""Nothing is known yet: any record may still come."""

MAX_WATERMARK: Milliseconds = 2**63 - 1
"""No record follows at all."""

Input = TypeVar("Input", bound=Hashable)


class CombinedWatermark(Generic[Input]):
    """That of the slowest input which is not idle; it never goes back. ``idle`` when no input is active.

    What is told of inputs that are none of its own, or no longer, changes nothing.

    When all are idle the furthest counts, as if it had been the last to rest: which one was must not matter.
    """

    def __init__(self, inputs: Iterable[Input] = ()) -> None:
        self._of: dict[Input, Milliseconds] = dict.fromkeys(inputs, MIN_WATERMARK)
        self._idle: set[Input] = set()
        self.time: Milliseconds = MIN_WATERMARK

    @property
    def inputs(self) -> Set[Input]:
        return self._of.keys()

    @property
    def idle(self) -> bool:
        return len(self._idle) == len(self._of)

    def add(self, inputs: Mapping[Input, Milliseconds]) -> None:
        """New ones, active, together: each holds the others back until it has come as far."""
        for each, time in inputs.items():
            self._of.setdefault(each, time)
        self._combine()

    def remove(self, each: Input) -> None:
        """It has ended for good and neither holds anybody back nor carries anybody on."""
        self._of.pop(each, None)
        self._idle.discard(each)
        self._combine()

    def advance(self, each: Input, time: Milliseconds) -> None:
        """The input delivered records up to ``time``, so it is active. At the last watermark of all it has ended."""
        if time == MAX_WATERMARK:
            self.remove(each)
        elif each in self._of and (time > self._of[each] or each in self._idle):
            self._idle.discard(each)
            self._of[each] = max(time, self._of[each])
            self._combine()

    def rest(self, each: Input) -> None:
        """Nothing comes from this input for now."""
        if each in self._of:
            self._idle.add(each)
            self._combine()

    def _combine(self) -> None:
        active = [time for each, time in self._of.items() if each not in self._idle]
        reached = min(active) if active else max(self._of.values(), default=MIN_WATERMARK)
        self.time = max(self.time, reached)
