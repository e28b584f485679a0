"""Buckets as they were at a freeze, while the loop goes on with them: a freeze takes no longer if there are very many.

Before the loop touches a bucket for the first time since a freeze that is still read, it notes what the bucket held. Whoever reads
takes what a bucket holds, and then what was noted of it instead, if anything was: whatever the loop changed by then, it had noted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar
from weakref import ref

E = TypeVar("E")
H = TypeVar("H")
H_co = TypeVar("H_co", covariant=True)


class Holder(Protocol[H_co]):
    """What is in a bucket."""

    def held(self) -> H_co:
        """Something that is never changed. On any thread; right if the loop changes nothing meanwhile."""


class BucketHistory(Generic[H]):
    """Belongs to the loop."""

    def __init__(self) -> None:
        self._latest: Callable[[], Moment[H] | None] = _nobody
        """It is there as long as somebody reads it, or an earlier one: else nothing need be noted."""

    def moment(self, of: Mapping[int, Any], content: Callable[[Any], Holder[H]]) -> "Moment[H]":
        """All buckets as they are now: they are found in ``of``, which goes on changing, and what is in them by ``content``."""
        moment = Moment(of, content)
        earlier = self._latest()
        if earlier is not None:
            earlier.next = moment
        self._latest = ref(moment)
        return moment

    def note(self, bucket: int, content: Holder[H] | None) -> None:
        """Before it is touched. None: there is no such bucket."""
        moment = self._latest()
        if moment is not None and bucket not in moment.noted:
            moment.noted[bucket] = None if content is None else content.held()


class Moment(Generic[H]):
    """Read on any thread, any number of times, as long as somebody keeps it."""

    def __init__(self, of: Mapping[int, Any], content: Callable[[Any], Holder[H]]) -> None:
        self._of = of
        self._content = content
        self.noted: dict[int, H | None] = {}
        """What the buckets that were touched since, but before the ``next`` moment, held until then."""
        self.next: Moment[H] | None = None

    def buckets(self) -> Iterator[tuple[int, H]]:
        # Each list is made at once: the loop does nothing meanwhile. What it dropped before the first one, it had noted.
        numbers = dict.fromkeys(list(self._of))
        for moment in self._onwards():
            numbers.update(dict.fromkeys(list(moment.noted)))
        for bucket in numbers:
            held = self._held(bucket)
            if held is not None:
                yield bucket, held

    def _held(self, bucket: int) -> H | None:
        there = self._of.get(bucket)
        now = None if there is None else self._content(there).held()
        for moment in self._onwards():
            if bucket in moment.noted:
                return moment.noted[bucket]
        return now

    def _onwards(self) -> "Iterator[Moment[H]]":
        moment: Moment[H] | None = self
        while moment is not None:
            yield moment
            moment = moment.next


class BucketsMark(Generic[E]):
    """The buckets that there were at a freeze, and how far each went. Whoever stores them finds that out on the way: until he has
    gone through all it is not known, and a checkpoint of which that was never done is none to build on."""

    def __init__(self, extents: Mapping[int, E] | None = None) -> None:
        self.extents = extents
        self.is_wanted = False

    def known_by(self, buckets: Iterable[tuple[int, H]], extent: Callable[[H], E]) -> Iterator[tuple[int, H]]:
        """All that there were, given on to who reads them."""
        extents: dict[int, E] = {}
        for bucket, held in buckets:
            if self.is_wanted:
                extents[bucket] = extent(held)
            yield bucket, held
        if self.is_wanted:
            self.extents = extents


def _nobody() -> None:
    return None
