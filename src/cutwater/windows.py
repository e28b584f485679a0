"""How a stream is cut into windows: ``cw.tumbling("5s")``, ``cw.sliding("10s", "5s")``, ``cw.session("30s")``. Pure."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from math import gcd
from typing import TypeVar

from cutwater.arguments import takes_no_others
from cutwater.duration import Duration, spelled, whole_milliseconds
from cutwater.errors import ConfigError
from cutwater.flow.event_time import Times
from cutwater.flow.watermarks import Milliseconds

T = TypeVar("T", Milliseconds, Times)

MOST_PANES = 10_000
"""In a window, and so the most windows of a record: each record costs as much as it has windows, and a window as its panes."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of ``size`` that begin every ``slide``, counted from 1970 and moved by ``offset``. All in milliseconds.

    A window is made of panes: the longest pieces that no window divides. Records are gathered by pane, so that one which is in
    many windows is kept once.
    """

    size: Milliseconds
    slide: Milliseconds
    offset: Milliseconds = 0

    def __str__(self) -> str:
        cut = f"tumbling({self.size} ms" if self.size == self.slide else f"sliding({self.size} ms, {self.slide} ms"
        return f"{cut}, offset {self.offset} ms)" if self.offset else f"{cut})"

    @property
    def pane(self) -> Milliseconds:
        return gcd(self.size, self.slide)

    def panes_of_times(self, times: Times) -> Times:
        """Where the pane of each time begins."""
        return _floored(times, self.pane, self.offset)

    def ends_of_pane(self, pane: Milliseconds) -> Iterator[Milliseconds]:
        """The ends of all windows that the pane is part of, ascending."""
        first = _floored(pane + self.pane - self.size - 1, self.slide, self.offset) + self.slide
        return (start + self.size for start in range(first, pane + 1, self.slide))

    def last_ends(self, panes: T) -> T:
        """The end of the last window that each pane, or the one, is part of."""
        return _floored(panes, self.slide, self.offset) + self.size

    def panes_of_window(self, end: Milliseconds) -> Iterator[Milliseconds]:
        return iter(range(end - self.size, end, self.pane))


def _floored(times: T, step: Milliseconds, offset: Milliseconds) -> T:
    return (times - offset) // step * step + offset


@takes_no_others
def tumbling(size: Duration, offset: Duration = timedelta(0)) -> Windows:
    """One window behind the other. ``offset`` moves them: days that begin at three are ``tumbling("1 day", offset="3h")``."""
    whole = whole_milliseconds("size", size)
    return Windows(whole, whole, _offset(offset, whole))


@takes_no_others
def sliding(size: Duration, slide: Duration, offset: Duration = timedelta(0)) -> Windows:
    """Windows of ``size``, of which a new one begins every ``slide``: a record is in several."""
    whole, step = whole_milliseconds("size", size), whole_milliseconds("slide", slide)
    if step > whole:
        raise ConfigError(
            f"slide={slide!r} is longer than size={size!r}: records between two windows would be in none. Filter them out, or use "
            f"a slide of at most the size."
        )
    windows = Windows(whole, step, _offset(offset, step))
    if whole // windows.pane > MOST_PANES:
        overlapping = -(-whole // step)
        raise ConfigError(
            f"slide={slide!r} is too short for size={size!r}: a record would be in {overlapping:,} windows; it may be in at most "
            f"{MOST_PANES:,}. Use a longer slide."
            if overlapping > MOST_PANES
            else f"slide={slide!r} does not divide size={size!r}: a window would be made of {whole // windows.pane:,} pieces of "
            f"{windows.pane} ms; it may have at most {MOST_PANES:,}. Use a slide that divides the size."
        )
    return windows


def _offset(given: Duration, step: Milliseconds) -> Milliseconds:
    back = _backwards(given)
    if back is None:
        return whole_milliseconds("offset", given, allow_zero=True)
    forwards = -back % step
    raise ConfigError(
        f"offset={given!r}: the duration must be zero or more. A window begins every {spelled(step)}: "
        + (f"offset={spelled(forwards)!r} moves them to the same places." if forwards else "leave it out.")
    )


def _backwards(given: object) -> Milliseconds | None:
    """How far, if that is what it says."""
    match given:
        case timedelta() if given < timedelta(0):
            return whole_milliseconds("offset", -given)
        case str() if given.strip().startswith("-"):
            with suppress(ConfigError):  # no duration with another sign either
                return whole_milliseconds("offset", given.strip()[1:])
    return None


@dataclass(frozen=True, slots=True)
class Sessions:
    """Windows that last as long as records of a key follow each other within ``gap`` milliseconds."""

    gap: Milliseconds


@takes_no_others
def session(gap: Duration) -> Sessions:
    """One window for records of a key that follow each other within ``gap``; it ends that long behind the last one."""
    return Sessions(whole_milliseconds("gap", gap))
