"""Numbers that are given out once and never again, whatever crashes and whoever races."""

from collections.abc import Callable

from cutwater.checkpoint.layout import number_of
from cutwater.checkpoint.storage import CheckpointStorage

_KEPT = 16
"""Markers that stay. One would prove the highest number; more cover a listing during which others claim and clean up."""


def highest_number(storage: CheckpointStorage, folder: str) -> int:
    """The highest number whose marker stands in ``folder``; 0 if there is none."""
    return max((number for name in storage.list(folder) if (number := number_of(name)) is not None), default=0)


def claim_next(
    storage: CheckpointStorage, folder: str, marker: Callable[[int], str], content: bytes, *, at_least: int = 1
) -> int:
    """Claim 1 + the highest number ever claimed. Durable when it returns; exactly one of all racing callers gets it.

    The highest marker is never deleted, so a number whose marker was cleaned away, and which a caller with old knowledge
    could create again, is recognised by a higher marker: that claim is given up.
    """
    number = max(highest_number(storage, folder) + 1, at_least)
    while True:
        won = storage.create(marker(number), content)
        highest = highest_number(storage, folder)
        if won and highest == number:
            return number
        if won:
            storage.delete([marker(number)])
        number = highest + 1


def clean_up(storage: CheckpointStorage, folder: str, highest: int) -> None:
    """Delete old markers, now that ``highest`` is claimed; many at once and seldom, because each deletion is a sync."""
    names = ((number_of(name.rpartition("/")[2].partition(".")[0]), name) for name in storage.list(folder))
    stale = [name for number, name in names if number is not None and number <= highest - _KEPT]
    if len(stale) >= _KEPT:
        storage.delete(stale)
