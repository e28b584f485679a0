"""``k.window(cw.session("30s"))``: records of a key that follow each other within the gap are one window, however long.

Windows merge when a record comes between them, so they belong to keys and not to a grid: each key has its own list of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from heapq import heappop, heappush
from itertools import chain, groupby, islice
from typing import Any

import numpy as np
import pyarrow as pa

from cutwater.flow.event_time import EventTime, Times
from cutwater.flow.watermarks import MAX_WATERMARK, MIN_WATERMARK, Milliseconds
from cutwater.operators.early_results import ChangedValues, EarlyResults
from cutwater.operators.key_sessions import HeldSessions, KeySessions
from cutwater.operators.keyed_state import KeyedStateOperator, bare_keys_of, key_schema, rows_of_keys
from cutwater.operators.operator import Collector, Json, OperatorContext
from cutwater.operators.restored_timers import RestoredEntries, RestoredKeys
from cutwater.operators.soonest import KeysAhead
from cutwater.operators.stored_watermark import restored_due, restored_watermark, stored_watermark
from cutwater.operators.told_before import ToldBefore
from cutwater.operators.window_calls import with_own_sides
from cutwater.operators.window_content import KeyWindow, Told, WindowContent, tell
from cutwater.operators.window_results import LATE, refuse_what_no_calendar_has, windowed
from cutwater.state.key_index import KeyIndex
from cutwater.state.restored_columns import table_seen
from cutwater.state.tables import RowTable

TABLE = "sessions"
TELL, FORGET = 0, 1
SESSIONS_A_STEP = 1024
_ALL: Milliseconds = 0
"""Sessions are looked for by their keys: what changed is not told apart by when it ends."""


class SessionWindows(KeyedStateOperator):
    """``time`` None: by the clock. A session whose end has passed is told; records that still come within the allowed lateness
    let it be told again, as it is then; with ``early``, open ones that changed are told so often by the clock."""

    def __init__(
        self,
        content: WindowContent,
        keys: Sequence[str],
        gap: Milliseconds,
        time: EventTime | None,
        lateness: Milliseconds,
        early: Milliseconds | None,
    ) -> None:
        self.content = content
        self._keys = tuple(keys)
        self._gap = gap
        self._time = time
        self._lateness = lateness
        self._every = early
        self.where = "window"
        self._reached = MIN_WATERMARK
        self._due_until: Milliseconds | None = None
        """While sessions are being told: time has come so far, and ``_reached`` follows."""
        self._agenda: list[tuple[Milliseconds, int, int, Any]] = []
        """When a session of a key is to be told or forgotten: (time, TELL or FORGET, a number that breaks ties, key). Of those that
        were restored the first ones, if none of the others comes before them."""
        self._again: dict[Any, Milliseconds] = {}
        """Of a key with a session that had become longer when it was to be told: when it is looked at again."""
        self._numbers = 0
        self._taken = MIN_WATERMARK
        """When what was taken from the agenda last was due."""

    @property
    def by_clock(self) -> bool:
        return self._time is None or self._every is not None or self.content.by_clock

    def describe(self) -> str:
        kind = "processing" if self._time is None else "event"
        return f"window(session({self._gap} ms), time={kind!r}).{self.content.describe()}"

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        self._rows = inputs[0]
        self._key_schema = key_schema(inputs[0], self._keys, "window")
        if self._time is not None:
            self._time.check(inputs[0], "window")
        results = self.content.bind(inputs[0], self._keys)
        self._schema = windowed(results, self.content.where_ends_stand, marked=self._every is not None)
        return self._schema

    def side_schemas(self) -> Mapping[str, pa.Schema]:
        late = {} if self._time is None else {LATE: self._rows}
        return with_own_sides(late, self.content.side_schemas())

    def open(self, ctx: OperatorContext) -> None:
        self.where = f"window {ctx.name!r} ({ctx.uid})"
        self._now: Callable[[], Milliseconds] = ctx.now
        self._steps = ctx.steps
        self._open_store(ctx)
        session = pa.struct([("start", pa.int64()), ("end", pa.int64()), ("content", self.content.stored_type)])
        self._reached = restored_watermark(ctx)
        self._resumed = restored_due(ctx)
        self._told_before = ToldBefore(ctx, self._keys)
        self._early = EarlyResults(self._every, ChangedValues)
        restored = RestoredKeys()

        def see(keys: list[Any], values: Any) -> None:
            """What was gathered is not looked at."""
            of_ends = restored.add(keys, values, values.flatten().field("end").to_numpy())
            self._early.note(_ALL, of_ends, ctx.now())

        self._table: RowTable = table_seen(self.store, TABLE, self._key_schema, pa.list_(session), see)
        self._held = HeldSessions(self._table)
        self._restored = self._agenda_of(restored)
        self._numbers = len(self._restored)
        self.content.open(ctx)

    def _agenda_of(self, restored: RestoredKeys) -> RestoredEntries:
        """As ``_entry`` does."""
        last = restored.times - 1
        told = last <= self._reached
        when = last + np.where(told, self._lateness, 0)
        return RestoredEntries([when, np.where(told, FORGET, TELL)], restored.keys)

    def _next_entry(self) -> tuple[Milliseconds, int, int, Any] | None:
        """What is to be done first."""
        self._restored.fill(self._agenda)
        return self._agenda[0] if self._agenda else None

    def _entry(self, end: Milliseconds, key: Any) -> tuple[Milliseconds, int, int, Any]:
        """What will have to be done about the session that ends there."""
        self._numbers += 1
        told = end - 1 <= self._reached
        when = end - 1 + (self._lateness if told else 0)
        return when, FORGET if told else TELL, self._numbers, key

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        if batch.num_rows == 0:
            return
        times = self._times_of(batch)
        order, fragments = self._fragments(batch, times)
        ordered, times = batch.take(order), times[order]
        first = np.flatnonzero(np.diff(fragments, prepend=-1))
        starts = times[first].tolist()
        ends = (np.maximum.reduceat(times, first) + self._gap).tolist()
        contents = self.content.of_fragments(ordered, fragments, len(first))
        late: list[int] = []
        again: list[Told] = []
        firsts = ordered.take(first)
        reached = self._reached_of(firsts)
        keys = bare_keys_of(firsts, self._keys)
        self.store.expect(keys)
        # The fragments of a key are side by side: its sessions are read and written once for all of them.
        for key, numbers in groupby(range(len(keys)), keys.__getitem__):
            sessions = KeySessions(self._table.get(key))
            is_changed = False
            for number in numbers:
                told = self._add(key, sessions, starts[number], ends[number], contents[number], reached[number])
                if told is None:
                    late.append(number)
                    continue
                is_changed = True
                if told.end - 1 <= self._reached:
                    again.append(Told(key, told))
                elif self._every is not None:
                    self._early.note(_ALL, [key], self._now())
            if is_changed:
                self._table.put(key, sessions.stored())
        if late:
            out.emit_side(LATE, ordered.filter(pa.array(np.isin(fragments, late))))
        self._tell(again, out)
        self.store.tend()

    def _times_of(self, batch: pa.RecordBatch) -> Times:
        if self._time is not None:
            return self._time.of(batch, self.where)
        # A clock that was set back does not go on with sessions that were told.
        return np.full(batch.num_rows, max(self._now(), self._reached + 1), np.int64)

    def _reached_of(self, rows: pa.RecordBatch) -> list[Milliseconds]:
        """How far time has come for the key of each row. By the clock nothing is late, whoever was further."""
        reached = self._reached if self._time is None else self._told_before.time_of(rows, self._reached)
        return np.full(rows.num_rows, reached).tolist()

    def _fragments(self, batch: pa.RecordBatch, times: Times) -> tuple[Times, Times]:
        """The order of the records by key and time, and for each of them so ordered the number of its fragment: the records of
        one batch that are in one session whatever was there before."""
        index = KeyIndex(self._key_schema)
        ids = index.locate(batch.select(list(self._keys)).columns, batch.num_rows).rows
        order = np.lexsort((times, ids))
        begins = (np.diff(ids[order], prepend=-1) != 0) | (np.diff(times[order], prepend=0) > self._gap)
        begins[0] = True
        return order, np.cumsum(begins) - 1

    def _add(
        self,
        key: Any,
        sessions: KeySessions,
        start: Milliseconds,
        end: Milliseconds,
        fragment: Any,
        reached: Milliseconds,
    ) -> KeyWindow | None:
        """The session that the fragment is part of then; None if it is over and done with, as time has ``reached`` for the key."""
        touched = sessions.touched_by(start, end)
        start = min([start, *(old.start for old in touched)])
        end = max([end, *(old.end for old in touched)])
        if end - 1 + self._lateness <= reached:
            return None
        refuse_what_no_calendar_has(start, end)
        content = reduce(self.content.merged, [old.content for old in touched]) if touched else None
        new = KeyWindow(start, end, self.content.added(content, fragment))
        sessions.put(new)
        # The agenda has an entry for a session that was not told yet, and looks then how long it has become: one for each time
        # that it becomes longer would be very many.
        if all(old.end - 1 <= self._reached and old.end != end for old in touched):
            heappush(self._agenda, self._entry(new.end, key))
        return new

    def on_watermark(self, watermark: Milliseconds, out: Collector) -> Iterator[None]:
        self.content.know(watermark)
        if self._time is not None:
            yield from self._advance(watermark, out)
        out.advance(watermark)

    def resuming(self, out: Collector) -> Iterator[None]:
        if self._time is not None and self._resumed > self._reached:
            yield from self._advance(self._resumed, out)

    def next_timer(self) -> Milliseconds | None:
        first = self._next_entry() if self._time is None else None
        ends = None if first is None else first[0] + 1
        return min((each for each in (ends, self._early.due) if each is not None), default=None)

    def on_processing_time(self, now: Milliseconds, out: Collector) -> Iterator[None]:
        if self._time is None:
            yield from self._advance(now - 1, out)
        for _, keys in self._early.take(now):
            yield from self._tell_early(iter(keys or ()), out)

    def _tell_early(self, keys: Iterator[Any], out: Collector) -> Iterator[None]:
        """Those that are open, and were for the old subtask of their key: what that told is over."""
        for step in self._steps.of(self._expected(keys), SESSIONS_A_STEP):
            sessions = ((key, KeyWindow(*raw), time) for key, time in step for raw in self._table.get(key) or ())
            self._tell((Told(key, each) for key, each, time in sessions if each.end - 1 > time), out, early=True)
            yield

    def _expected(self, keys: Iterator[Any]) -> Iterator[tuple[Any, Milliseconds]]:
        """Each key, and how far time has come for it."""
        while some := list(islice(keys, SESSIONS_A_STEP)):
            self.store.expect(some)
            times = [self._reached] * len(some)
            if self._told_before.is_ahead_of(self._reached):
                times = self._reached_of(rows_of_keys(some, self._key_schema))
            yield from zip(some, times, strict=True)

    def end_of_input(self, out: Collector, *, drain: bool) -> Iterator[None]:
        """By the clock too the sessions that are open when all input has ended are told, as they are."""
        if drain and self._time is None:
            yield from self._advance(MAX_WATERMARK, out)

    def _advance(self, time: Milliseconds, out: Collector) -> Iterator[None]:
        self._due_until = time
        for step in self._steps.of(self._due(time), SESSIONS_A_STEP):
            self._tell(chain.from_iterable(step), out)
            self._held.put_back()
            self.store.tend()
            done = self._taken
            tied = (first := self._next_entry()) is not None and first[0] == done
            # Of those that end at the same time, the ones that were told are gone. If they stay, for late records, a snapshot
            # could not say which were.
            self.may_be_cut = not (tied and self._lateness)
            if self.may_be_cut:
                self._reached = max(done - 1 if tied else done, self._reached)
            yield
        self.may_be_cut = True
        self._reached = max(time, self._reached)
        self._due_until = None

    def _due(self, time: Milliseconds) -> Iterator[list[Told]]:
        """Of each point of the agenda that becomes due, what is to be told. What is done with is dropped before: a cut may come
        when it was told, and that was put back."""
        ahead = KeysAhead(self.store, self._agenda, time, self._held)
        # Keys whose sessions end when the one that was taken last did: of sessions that became one, each has an entry.
        told: set[Any] = set()
        while (first := self._next_entry()) is not None and first[0] <= time:
            ahead.before_next()
            before = self._taken
            self._taken, what, _, key = heappop(self._agenda)
            if self._taken != before:
                told.clear()
            if self._again.get(key) == self._taken:
                del self._again[key]
            if what == FORGET:
                self._held.drop(key, self._taken - self._lateness)
                yield []
                continue
            found = self._held.of(key).at(self._taken)
            ending = []
            if found is not None and found.end - 1 > self._taken:
                self._look_again(key, found)
            elif found is not None and key not in told:
                ending.append(Told(key, found))
                if self._lateness:
                    self._numbers += 1
                    heappush(self._agenda, (self._taken + self._lateness, FORGET, self._numbers, key))
                else:
                    self._held.drop(key, self._taken)
            told.add(key)
            yield ending

    def _look_again(self, key: Any, session: KeyWindow) -> None:
        """When it ends, as far as is known; or before, if that is to be done already: of sessions that became one each has an
        entry, and a session that goes on for ever would gather ever more."""
        known = self._again.get(key)
        if known is None or not max(self._taken, session.start - 1) < known < session.end:
            entry = self._entry(session.end, key)
            heappush(self._agenda, entry)
            if entry[1] == TELL:
                self._again[key] = entry[0]

    def _tell(self, told: Iterable[Told], out: Collector, *, early: bool = False) -> None:
        tell(self.content, told, self._schema, out, early if self._every is not None else None)

    def _inline(self) -> Json:
        time = stored_watermark(self._reached, self._due_until)
        return self.content.inline_with({**time, **self._told_before.stored(self._reached)})

    def close(self) -> None:
        try:
            self.content.close()
        finally:
            super().close()
