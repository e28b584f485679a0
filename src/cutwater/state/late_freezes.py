"""Buckets that have to be frozen, as they were at a moment that goes through none of them.

To freeze one is soon done, but there may be a thousand. So each is frozen when it can wait no longer: before the loop touches it,
or when a reader of the moment comes to it. Both do so under one lock, held for as long as that takes and never while rows are
read: whoever is second finds what the first one noted.
"""

import threading
from collections.abc import Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from cutwater.state.bucket_history import Holder


class Frozen(Protocol):
    def release(self) -> None:
        """Nobody reads it any more. On any thread."""


F = TypeVar("F", bound=Frozen)


class LateFreezes(Generic[F]):
    """The loop makes moments, and notes what it is about to touch. Moments are read and released on any thread."""

    def __init__(self, of: Mapping[int, Holder[F]]) -> None:
        """``of``: what is in each bucket. The loop goes on changing it."""
        self._of = of
        self._lock = threading.Lock()
        self._moments: list[LateMoment[F]] = []
        """Those that are not released, oldest first."""

    def moment(self) -> "LateMoment[F]":
        """All buckets as they are now."""
        moment = LateMoment(self)
        with self._lock:
            self._moments.append(moment)
        return moment

    def note(self, bucket: int) -> None:
        """Before the bucket is made, written to or dropped."""
        if not self._moments:
            return  # others only take away from them
        with self._lock:
            if self._moments:
                self._held(self._moments[-1], bucket)

    def buckets(self, moment: "LateMoment[F]") -> list[int]:
        """Those that there were at the moment, and perhaps others."""
        with self._lock:
            # At once: the loop does nothing meanwhile. What it dropped before, it had noted.
            numbers = dict.fromkeys(list(self._of))
            for each in self._onwards(moment):
                numbers.update(dict.fromkeys(each.noted))
        return list(numbers)

    def held(self, moment: "LateMoment[F]", bucket: int) -> F | None:
        """What was in the bucket at the moment; None: there was no such bucket."""
        with self._lock:
            return self._held(moment, bucket)

    def release(self, moment: "LateMoment[F]") -> None:
        unread = []
        with self._lock:
            at = self._moments.index(moment)
            del self._moments[at]
            earlier = self._moments[at - 1] if at > 0 else None
            for bucket, held in moment.noted.items():
                if earlier is not None and bucket not in earlier.noted:
                    earlier.noted[bucket] = held  # it was like that then, too
                elif held is not None:
                    unread.append(held)
        for held in unread:
            held.release()

    def _held(self, moment: "LateMoment[F]", bucket: int) -> F | None:
        for each in self._onwards(moment):
            if bucket in each.noted:
                return each.noted[bucket]
        # Nobody touched it since.
        there = self._of.get(bucket)
        held = self._moments[-1].noted[bucket] = None if there is None else there.held()
        return held

    def _onwards(self, moment: "LateMoment[F]") -> "list[LateMoment[F]]":
        return self._moments[self._moments.index(moment) :]


class LateMoment(Generic[F]):
    """Read any number of times until it is released."""

    def __init__(self, of: LateFreezes[F]) -> None:
        self._of = of
        self.noted: dict[int, F | None] = {}
        """What buckets held that were touched, or read, before there was a later moment."""

    def buckets(self) -> Iterator[tuple[int, F]]:
        for bucket in self._of.buckets(self):
            held = self._of.held(self, bucket)
            if held is not None:
                yield bucket, held

    def release(self) -> None:
        """Once, in the end."""
        self._of.release(self)
