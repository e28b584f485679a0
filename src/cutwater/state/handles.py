"""What ``self.seen`` is inside a keyed function: the state of the current key."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from cutwater.errors import ConfigError
from cutwater.flow.watermarks import Milliseconds
from cutwater.state.due_keys import DueKeys
from cutwater.state.expiry import expiries
from cutwater.state.key_scope import KeyScope
from cutwater.state.parted_dict import SLOTS
from cutwater.state.place import Place
from cutwater.state.tables import ReadsAhead, RestoresColumns, RowTable
from cutwater.state.value_types import handing_out

SWEEP_STEP = 1024
KEYS_AT_ONCE = 256
LOOKS_AT_A_VALUE = 2
"""A value is looked at once in each ttl of its key: what was written in the last one is looked at again when it has expired."""
NOTHING = object()
"""In place of a value: none is there, or it has expired."""


class Handle:
    """Common to all handles. With a ``ttl`` each entry is kept as (value, time of expiry); a write renews it, and if ``renews``
    so does a read that finds it."""

    __slots__ = (
        "_admitted", "_copy_out", "_folded", "_queue", "_reads_kept", "_renews", "_scope", "_table", "_ttl", "_unseen",
        "_values_a_key", "_written",
    )  # fmt: skip

    def __init__(
        self,
        table: RowTable,
        scope: KeyScope,
        place: Place,
        data_type: pa.DataType,
        ttl: Milliseconds | None,
        *,
        renews: bool = False,
    ) -> None:
        self._table = table
        self._scope = scope
        self._ttl = ttl
        self._renews = renews
        self._admitted = place.admitted
        self._folded = place.folded
        self._copy_out = handing_out(data_type)
        self._reads_kept = ttl is None and self._copy_out is None
        """What is read is just what is kept. The common case, so it is asked first."""
        self._queue: DueKeys
        """With a ttl: each key that has an entry, and when to look at it."""
        self._unseen: Iterator[Iterable[tuple[Any, Milliseconds]]] | None = None
        """With a ttl: keys that were restored and may not be in the queue yet, and when they will have expired."""
        self._written = 0
        """With a ttl: how many values were written or renewed since the last sweep."""
        self._values_a_key = 1.0
        """As was seen in sweeps: where they are many, few keys are read at once."""
        if ttl is not None:
            self._queue = DueKeys(ttl)
            self._unseen = self._restored()

    def __repr__(self) -> str:
        """What is there under the current key, for a print; to look at it renews nothing."""
        kind = f"{type(self).__name__.removesuffix('Handle')}State"
        try:
            kept = self._table.get(self._scope.key)
        except ConfigError:
            return f"{kind}, of no key here"
        return f"{kind}({self._shown(kept)})"

    def _shown(self, kept: Any) -> str:
        """Of what is kept under a key; None: nothing is."""
        raise NotImplementedError

    @property
    def expires(self) -> bool:
        return self._ttl is not None

    @property
    def name(self) -> str:
        return self._table.name

    def clear(self) -> None:
        """Forget everything under the current key."""
        self._table.delete(self._scope.key)
        if self._ttl is not None:
            self._queue.remove(self._scope.key)

    def sweep(self) -> None:
        """Drop what has expired, at most a bounded number of keys and elements: a step, and what keeps up with writing.

        A key that is written to again and again is looked at once in each ttl: it keeps what came in two of them.
        """
        if self._ttl is None:
            return
        if self._unseen is not None:
            self._see(self._unseen)
        now, left = self._scope.now(), SWEEP_STEP + LOOKS_AT_A_VALUE * self._written
        self._written = 0
        while left > 0 and (keys := self._to_look_at(now, left)):
            if isinstance(self._table, ReadsAhead):
                self._table.expect(keys)
            for key in keys:
                left -= self._look_at(key, now)
                if left <= 0:
                    return

    def _restored(self) -> Iterator[Iterable[tuple[Any, Milliseconds]]]:
        """In steps. Until a key is seen it only stays longer than it need: nobody reads what has expired. To go through millions of
        them before the first record would take longer than all else of a restore."""
        if isinstance(self._table, RestoresColumns):
            parts = self._table.restored(SWEEP_STEP)
            return (zip(keys, expiries(values).tolist(), strict=True) for keys, values in parts)
        return self._read_again([key for key, _ in self._table.items()])

    def _read_again(self, keys: list[Any]) -> Iterator[list[tuple[Any, Milliseconds]]]:
        """Of a backend that has no columns: so many values in a step, some of which may be gone since."""
        step: list[tuple[Any, Milliseconds]] = []
        left = SWEEP_STEP
        for key in keys:
            entry = self._table.get(key)
            if entry is not None:
                step.append((key, self._expiry(entry)))
            left -= 1 if entry is None else self._size(entry)
            if left <= 0:
                yield step
                step, left = [], SWEEP_STEP
        yield step

    def _see(self, unseen: Iterator[Iterable[tuple[Any, Milliseconds]]]) -> None:
        """A step, and what keeps up with writing: new keys may stand among those that are not seen yet."""
        for _ in range(1 + self._written // SWEEP_STEP):
            step = next(unseen, None)
            if step is None:
                self._unseen = None
                return
            for key, expiry in step:
                self._queue.note_restored(key, expiry)

    def _to_look_at(self, now: Milliseconds, values: int) -> list[Any]:
        """The next keys, for about so many values."""
        return self._queue.due(now, max(1, min(KEYS_AT_ONCE, int(values / self._values_a_key))))

    def _look_at(self, key: Any, now: Milliseconds) -> int:
        """How many values were looked at."""
        self._queue.remove(key)
        entry = self._table.get(key)
        if entry is None:
            return 1  # it was seen as it was restored, and is gone since
        size, expiry = self._size(entry), self._expiry(entry)
        self._values_a_key += (size - self._values_a_key) / 2
        if expiry <= now:
            self._table.delete(key)
        else:
            self._drop_expired(key, entry, now)
            self._queue.note(key, expiry)
        return size

    def _size(self, entry: Any) -> int:
        """How many values the entry has."""
        return 1

    def _drop_expired(self, key: Any, entry: Any, now: Milliseconds) -> None:
        """Put only what still lives of an entry that has not wholly expired."""

    def _expiry(self, entry: Any) -> Milliseconds:
        """When all of the entry will have expired."""
        raise NotImplementedError

    def _wrapped(self, value: Any) -> Any:
        if self._ttl is None:
            return value
        self._written += 1
        return value, self._scope.now() + self._ttl

    def _enqueue(self, kept: Any) -> None:
        """The current key, of which that is an entry, unless it is there already."""
        if self._ttl is not None:
            self._queue.note(self._scope.key, kept[1])

    def _renewed(self, kept: Any) -> Any:
        """An entry as it is kept, from now on for another ttl."""
        return self._wrapped(kept[0])

    def _is_live(self, kept: Any) -> bool:
        return self._ttl is None or kept[1] > self._scope.now()

    def _live(self, kept: Any) -> Any:
        """The value of a kept entry, or NOTHING when it has expired."""
        if self._ttl is not None:
            kept, expiry = kept
            if expiry <= self._scope.now():
                return NOTHING
        return kept if self._copy_out is None else self._copy_out(kept)


class SingleHandle(Handle):
    """One value under the key."""

    __slots__ = ()

    def _get(self) -> Any:
        kept = self._table.get(self._scope.key)
        if self._reads_kept or kept is None:
            return kept
        value = self._live(kept)
        if value is NOTHING:
            return None
        if self._renews:
            self._table.put(self._scope.key, self._renewed(kept))
        return value

    def _set(self, value: Any) -> None:
        if value is None:
            self.clear()
            return
        admitted = self._admitted(value)
        if self._ttl is None:
            self._table.put(self._scope.key, admitted)
        else:
            # As ``_wrapped`` and ``_enqueue`` do, without the calls.
            key, expiry = self._scope.key, self._scope.now() + self._ttl
            self._written += 1
            if key not in self._queue.of_slot[hash(key) % SLOTS]:
                self._queue.note(key, expiry)
            self._table.put(key, (admitted, expiry))

    def _expiry(self, entry: Any) -> Milliseconds:
        return int(entry[1])

    def _shown(self, kept: Any) -> str:
        value = None if kept is None else self._live(kept)
        return repr(None if value is NOTHING else value)


class ValueHandle(SingleHandle):
    """``self.seen.value``; None when nothing was set, and setting None clears."""

    __slots__ = ()

    value = property(SingleHandle._get, SingleHandle._set)


class ReducingHandle(SingleHandle):
    """``self.total.add(x)``; ``self.total.value``."""

    __slots__ = ("reduce",)
    reduce: Callable[[Any, Any], Any]

    value = property(SingleHandle._get)

    def add(self, value: Any) -> None:
        before = self._get()
        if before is not None:
            # as a row, if it is a struct: the function sees two values of the same kind
            after = self.reduce(before, None if value is None else self._admitted(value))
            value = self._folded(before, after)
        self._set(value)


class AggregatingHandle(SingleHandle):
    """``self.average.add(x)``; ``self.average.value`` is the result of what was added, None if nothing was."""

    __slots__ = ("accumulate", "create", "result")
    create: Callable[[], Any]
    accumulate: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]

    def add(self, value: Any) -> None:
        before = self._get()
        if before is None:
            made = self.create()
            before = None if made is None else self._admitted(made)  # nothing yet, as for a maximum
        self._set(self._folded(before, self.accumulate(before, value)))

    @property
    def value(self) -> Any:
        accumulated = self._get()
        return None if accumulated is None else self.result(accumulated)
