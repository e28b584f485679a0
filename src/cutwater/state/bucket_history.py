"""Buckets as they were at a freeze, while the loop goes on with them: a freeze takes no longer if there are very many.

Before the loop touches a bucket for the first time since a freeze that is still read, it notes what the bucket held. Whoever reads
takes what a bucket holds, and then what was noted of it instead, if anything was: whatever the loop changed by then, it had noted.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from weakref import ref

from cutwater.state.appended_rows import AppendedRows, HeldRows


class BucketHistory:
    """Belongs to the loop."""

    def __init__(self) -> None:
        self._latest: Callable[[], Moment | None] = _nobody
        """It is there as long as somebody reads it, or an earlier one: else nothing need be noted."""

    def moment(self, of: Mapping[int, Any], rows_in: Callable[[Any], AppendedRows]) -> "Moment":
        """All buckets as they are now: they are found in ``of``, which goes on changing, and their rows by ``rows_in``."""
        moment = Moment(of, rows_in)
        earlier = self._latest()
        if earlier is not None:
            earlier.next = moment
        self._latest = ref(moment)
        return moment

    def note(self, bucket: int, rows: AppendedRows | None) -> None:
        """Before it is touched. None: there is no such bucket."""
        moment = self._latest()
        if moment is not None and bucket not in moment.noted:
            moment.noted[bucket] = None if rows is None else rows.held()


class Moment:
    """Read on any thread, any number of times, as long as somebody keeps it."""

    def __init__(self, of: Mapping[int, Any], rows_in: Callable[[Any], AppendedRows]) -> None:
        self._of = of
        self._rows_in = rows_in
        self.noted: dict[int, HeldRows | None] = {}
        """What the buckets that were touched since, but before the ``next`` moment, held until then."""
        self.next: Moment | None = None

    def buckets(self) -> Iterator[tuple[int, HeldRows]]:
        # Each list is made at once: the loop does nothing meanwhile. What it dropped before the first one, it had noted.
        numbers = dict.fromkeys(list(self._of))
        for moment in self._onwards():
            numbers.update(dict.fromkeys(list(moment.noted)))
        for bucket in numbers:
            held = self._held(bucket)
            if held is not None:
                yield bucket, held

    def _held(self, bucket: int) -> HeldRows | None:
        there = self._of.get(bucket)
        now = None if there is None else self._rows_in(there).held()
        for moment in self._onwards():
            if bucket in moment.noted:
                return moment.noted[bucket]
        return now

    def _onwards(self) -> "Iterator[Moment]":
        moment: Moment | None = self
        while moment is not None:
            yield moment
            moment = moment.next


def _nobody() -> None:
    return None
