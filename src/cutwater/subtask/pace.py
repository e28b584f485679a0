"""How many rows make a slice: adapted so that a slice takes about the time it should."""


class Pace:
    """Grows at most twofold a slice, shrinks at once: one slow slice is enough to be careful."""

    def __init__(self, target_seconds: float, max_rows: int, first_rows: int = 1024) -> None:
        self._target = target_seconds
        self._max = max_rows
        self.rows = min(first_rows, max_rows)

    def observe(self, rows: int, seconds: float) -> None:
        if rows <= 0:
            return
        affordable = self._max if seconds <= 0 else int(rows * self._target / seconds)
        # A short slice says little about a long one, so growth is judged only by slices of full length.
        if affordable > self.rows and rows < self.rows:
            return
        self.rows = max(1, min(affordable, self.rows * 2, self._max))
