"""How many rows make a slice: adapted so that a slice takes about the time it should."""

PATIENCE = 8
"""So many slow slices in a row say that it is the rows; a single one may only have waited for a busy machine."""
VERY_SLOW = 4
"""So many times the target say it at once."""
HELPED = 0.75
"""Half the rows should take little more than half the time. If they take more than this part of it, it is not the rows."""


class Pace:
    """Twice the rows after a fast slice, half of them or fewer when slices are slow. Nothing is known of the first rows: a
    trigger may come while they are processed, so they are few.

    Where fewer rows do not help, because what a batch costs whatever its size is most of the time, slices become longer than
    the target instead: with ever fewer rows each, such a subtask would do nothing else.
    """

    def __init__(self, target_seconds: float, max_rows: int, first_rows: int = 1) -> None:
        self._target = target_seconds
        self._max = max_rows
        self.rows = min(first_rows, max_rows)
        self._growing = True
        """Slices have only become longer so far."""
        self._took: float | None = None
        """The last slice while they do."""
        self._slow: list[float] = []
        """What the last slices took, since one was not slow."""
        self._before: tuple[int, float] | None = None
        """Rows and time before they became fewer."""
        self._floor = (0, 0.0)
        """Rows, and their time, of which half did not help."""

    def observe(self, rows: int, seconds: float) -> None:
        if rows <= 0 or (rows >= self.rows and self._grew(seconds)):
            return
        if seconds <= self._target:
            self._slow.clear()
            self._before = None
            # A short slice says little about a long one, so growth is judged only by slices of full length.
            if seconds <= self._target / 2 and rows >= self.rows:
                self.rows = min(2 * self.rows, self._max)
            return
        self._slow.append(seconds)
        if seconds > VERY_SLOW * self._target or len(self._slow) == PATIENCE:
            self._became_slow(rows, min(self._slow))
            self._slow.clear()

    def _grew(self, seconds: float) -> bool:
        """At the start: whether twice the rows may follow, because these took no time or no more than half of them had taken. A
        single row that is slow leaves open whether it is the row."""
        before, self._took = self._took, seconds
        not_the_rows = self.rows == 1 if before is None else before > HELPED * seconds
        self._growing = self._growing and self.rows < self._max and (seconds <= self._target / 2 or not_the_rows)
        if self._growing:
            self.rows = min(2 * self.rows, self._max)
        return self._growing

    def _became_slow(self, rows: int, seconds: float) -> None:
        if self._before is not None and rows <= self._before[0] // 2 and seconds > HELPED * self._before[1]:
            self._floor = self._before
            self._before = None
            self.rows = min(2 * self._floor[0], self._max)
            return
        at_least, took = self._floor
        if rows <= at_least and seconds <= 2 * took:
            return
        fewer = max(1, min(rows // 2, int(rows * self._target / seconds), self._max))
        if fewer < rows:
            self._before = (rows, seconds)
            self.rows = fewer
