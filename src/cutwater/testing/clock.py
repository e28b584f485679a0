"""A clock that stands still until it is moved."""


class ManualClock:
    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        self._start = wall
        self._passed = 0.0

    def monotonic(self) -> float:
        return self._passed

    def wall(self) -> float:
        return self._start + self._passed

    def waited_for_core(self) -> float:
        return 0.0

    def advance(self, seconds: float) -> None:
        self._passed += seconds
