"""A subtask's right to go on, renewed by the driver. Pure: the time is given.

A lease counts from the moment it was *asked for*, on the asker's own clock. A frozen process that wakes up and finds
old grants in its socket gains nothing by them, and the driver knows an upper bound for every lease it granted:
the time of its answer plus the length.
"""

ASK_AT_LEAST_EVERY = 1.0
_LAST_QUESTION = 0.9
"""Near its end, one last question is asked. It matters after a long native call that held the GIL: the control thread
wakes up behind its deadline, with nothing wrong, and must not end the process unasked (rule 10)."""


class Lease:
    """The client's side. ``holds`` is for whoever touches the outside world; ``is_lost`` ends the process."""

    def __init__(self, length: float, now: float) -> None:
        """``length`` in seconds. The first lease is provisional: it bounds the time until the driver's first word."""
        self._length = length
        self._counts_from = now
        self._asked_at: float | None = None
        self._last_question_at: float | None = None
        self._ever_granted = False

    @property
    def length(self) -> float:
        return self._length

    @property
    def deadline(self) -> float:
        return self._counts_from + self._length

    @property
    def ever_granted(self) -> bool:
        return self._ever_granted

    def holds(self, now: float) -> bool:
        return self._ever_granted and now < self.deadline

    def ask_due(self) -> float | None:
        """When to ask next; None when the last question has been asked."""
        if self._last_question_at is not None:
            return None
        if self._asked_at is None:
            return self._counts_from
        return min(self._asked_at + min(ASK_AT_LEAST_EVERY, self._length / 5), self._last_question_due())

    def asked(self, now: float) -> None:
        self._asked_at = now
        if self._last_question_at is None and now >= self._last_question_due():
            self._last_question_at = now

    def granted(self, asked_at: float) -> None:
        """An answer to the question of ``asked_at``. Answers to older questions than the newest answered change nothing."""
        self._ever_granted = True
        if asked_at > self._counts_from:
            self._counts_from = asked_at
            self._last_question_at = None

    def lost_at(self) -> float | None:
        """When the lease is lost unless word comes; None before the last question."""
        if self._last_question_at is None:
            return None
        return self._last_question_at + (1 - _LAST_QUESTION) * self._length

    def is_lost(self, now: float) -> bool:
        lost_at = self.lost_at()
        return lost_at is not None and now >= lost_at

    def _last_question_due(self) -> float:
        return self._counts_from + _LAST_QUESTION * self._length
