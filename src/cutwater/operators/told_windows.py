"""When windows on a grid are told, in time, early and again, and in which steps. What they hold, subclasses say."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic

from cutwater.flow.watermarks import MAX_WATERMARK, Milliseconds
from cutwater.operators.early_results import C, EarlyResults
from cutwater.operators.keyed_state import KeyedStateOperator
from cutwater.operators.operator import Collector, Json, OperatorContext
from cutwater.operators.stored_watermark import restored_due, restored_watermark, stored_watermark
from cutwater.operators.told_before import ToldBefore
from cutwater.operators.window_ends import AT_ONCE, WindowEnds
from cutwater.operators.window_results import refuse_what_no_calendar_has
from cutwater.state.tables import Size

WINDOWS_TOGETHER, ROWS_TOGETHER, BYTES_TOGETHER = 256, 1024, 1 << 20
"""Of windows that are told in one step, each of few rows: no more than that."""
DROPPED_TOGETHER = 64
"""So many small slots are forgotten in one step."""


class ToldWindows(KeyedStateOperator, Generic[C]):
    """Rows that change a window which was told already, within the allowed lateness, let it be told again for their keys; with
    ``early``, those that change an open one let it be told so often by the clock."""

    kind_of_time: str
    """By which windows end: ``event`` or ``processing``."""

    def __init__(self, keys: Sequence[str], ends: WindowEnds, early: Milliseconds | None) -> None:
        self._keys = tuple(keys)
        self._ends = ends
        self._every = early
        self.where = "window"

    @property
    def _ends_by_clock(self) -> bool:
        return self.kind_of_time == "processing"

    @property
    def by_clock(self) -> bool:
        return self._ends_by_clock or self._every is not None

    def _describe(self) -> str:
        return f"window({self._ends.windows}, time={self.kind_of_time!r})"

    def _open_windows(self, ctx: OperatorContext, slots: Iterable[int]) -> None:
        """``slots``: where rows are kept, panes or the starts of windows; of those that were restored."""
        self._now = ctx.now
        self._ends.reached = restored_watermark(ctx)
        self._resumed = restored_due(ctx)
        self._told_before = ToldBefore(ctx, self._keys, self._ends.lateness)
        for slot in slots:
            self._ends.expect(slot, self._ends_of_slot(slot))
        self._early: EarlyResults[C] = EarlyResults(self._every, self._nothing_changed)
        self._early.note_all(self._ends.open_ones(), ctx.now())
        self._together = ctx.steps.together(WINDOWS_TOGETHER)
        self._again: dict[Milliseconds, C] = {}
        """Windows that late rows changed, and the keys of those. Not in snapshots: it is told before the next one."""

    @abstractmethod
    def _nothing_changed(self) -> C: ...

    def _ends_of_slot(self, slot: int) -> Iterable[Milliseconds]:
        """Of the windows that rows of the slot are in."""
        return self._ends.windows.ends_of_pane(slot)

    @abstractmethod
    def _tell(self, end: Milliseconds, out: Collector, changed: C | None, *, early: bool = False) -> Iterator[bool]:
        """The window that ends there, in steps; only the keys that ``changed``, if that is given. Behind each step, whether
        none of them was told yet."""

    def _size_of(self, slots: Iterable[int]) -> Size | None:
        """What they hold, if it is known without a look at it, and may be told with others."""
        return None

    def _slots_of_window(self, end: Milliseconds) -> Iterable[int]:
        """In which its rows are."""
        return self._ends.windows.panes_of_window(end)

    def _tell_together(self, ends: Sequence[Milliseconds], out: Collector) -> None:
        """Several windows at once, whole and in their order, which ``_size_of`` their slots allows for."""
        raise NotImplementedError(f"{type(self).__name__} tells each window by itself")

    @abstractmethod
    def _drop(self, slot: int) -> Iterator[bool]:
        """Forget its rows, in steps. Behind each, whether it was so short that others may join it."""

    def _note_changed(self, slot: int, keys: Any) -> None:
        """Rows of ``keys`` were put into the slot."""
        ends = list(self._ends_of_slot(slot))
        open_ones = [end for end in (ends[0], ends[-1]) if end - 1 + self._ends.lateness > self._ends.reached]
        for end in open_ones:
            refuse_what_no_calendar_has(end - self._ends.windows.size, end)
        for end in self._ends.expect(slot, ends):
            self._again.setdefault(end, self._nothing_changed()).add(keys)
            self.may_be_cut = False
        if self._every is not None:
            now = self._now()
            for end in ends:
                if end - 1 > self._ends.reached:
                    self._early.note(end, keys, now)

    def on_watermark(self, watermark: Milliseconds, out: Collector) -> Iterator[None]:
        yield from self._tell_again(out)
        if not self._ends_by_clock:
            yield from self._tell_until(watermark, out)
        out.advance(watermark)

    def resuming(self, out: Collector) -> Iterator[None]:
        if not self._ends_by_clock and self._resumed > self._ends.reached:
            yield from self._tell_until(self._resumed, out)

    def next_timer(self) -> Milliseconds | None:
        if self._again:
            return AT_ONCE
        due = [self._early.due, self._ends.first() if self._ends_by_clock else None]
        return min((each for each in due if each is not None), default=None)

    def on_processing_time(self, now: Milliseconds, out: Collector) -> Iterator[None]:
        yield from self._tell_again(out)
        if self._ends_by_clock:
            yield from self._tell_until(now - 1, out)
        for end, changed in self._early.take(now):
            if end - 1 > self._ends.reached:
                yield from self._tell_whole(end, out, changed, early=True)
                self.may_be_cut = True

    def end_of_input(self, out: Collector, *, drain: bool) -> Iterator[None]:
        """By the clock too the windows that are open when all input has ended are told, as they are."""
        if drain and self._ends_by_clock:
            yield from self._tell_until(MAX_WATERMARK, out)

    def _tell_again(self, out: Collector) -> Iterator[None]:
        """In steps, behind the batch that changed them: one record may be in very many windows, and all rows of each may have to
        be looked at."""
        while self._again:
            end = min(self._again)
            for _ in self._tell(end, out, self._again.pop(end)):
                yield
        self.may_be_cut = True

    def _tell_until(self, time: Milliseconds, out: Collector) -> Iterator[None]:
        self._ends.due_until = time
        while ends := self._due_together(time):
            if len(ends) == 1:
                yield from self._tell_whole(ends[0], out, None)
            else:
                self._together.begin()
                self._tell_together(ends, out)
                self._together.end(len(ends))
                self.may_be_cut = False
            yield from self._reach(ends[-1] - 1)
            self.may_be_cut = True
            yield
        yield from self._reach(time)
        self._ends.due_until = None

    def _due_together(self, time: Milliseconds) -> list[Milliseconds]:
        """The ends of the next windows that are told in one step: of one, or of several that have few rows."""
        due = self._ends.due(time)
        ends = list(islice(due, 1))
        if not ends or self._together.number == 1 or (size := self._small(ends[0])) is None:
            return ends
        rows, bytes_ = size
        while (
            len(ends) < self._together.number
            and (following := self._ends.first()) is not None
            and following - 1 <= time
            and (size := self._small(following)) is not None
        ):
            rows, bytes_ = rows + size.rows, bytes_ + size.bytes
            if rows > ROWS_TOGETHER or bytes_ > BYTES_TOGETHER:
                break
            ends += islice(due, 1)
        return ends

    def _small(self, end: Milliseconds) -> Size | None:
        """None: that window is told by itself."""
        if self._told_before.any_of(end, early=False):
            return None
        size = self._size_of(self._slots_of_window(end))
        return None if size is None or size.rows > ROWS_TOGETHER or size.bytes > BYTES_TOGETHER else size

    def _tell_whole(
        self, end: Milliseconds, out: Collector, changed: C | None, *, early: bool = False
    ) -> Iterator[None]:
        """Half of a window: a snapshot could not say which of its keys were told. As long as none is, it need not."""
        self._together.begin()
        for none_told in self._tell(end, out, changed, early=early):
            self._together.end(1)
            self.may_be_cut = none_told
            yield
            self._together.begin()
        self.may_be_cut = False

    def _reach(self, time: Milliseconds) -> Iterator[None]:
        short_ones = 0
        for slot in self._ends.reach(time):
            for was_short in self._drop(slot):
                short_ones = short_ones + 1 if was_short else DROPPED_TOGETHER
                if short_ones >= DROPPED_TOGETHER:
                    short_ones = 0
                    yield

    def _inline(self) -> Json:
        reached = self._ends.reached
        return {**stored_watermark(reached, self._ends.due_until), **self._told_before.stored(reached)}
