"""What ``self.seen`` is for a list or a map: several values under the current key, each with its own time of expiry."""

from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import pyarrow as pa

from cutwater.errors import ConfigError, DataError
from cutwater.flow.watermarks import Milliseconds
from cutwater.state.handles import NOTHING, Handle
from cutwater.state.place import KeyPlace
from cutwater.state.value_types import several_values


class ListHandle(Handle):
    """``append``, ``extend``, iteration, ``len``, ``clear``."""

    __slots__ = ()

    def append(self, value: Any) -> None:
        self.extend((value,))

    def extend(self, values: Iterable[Any]) -> None:
        admitted = [None if v is None else self._admitted(v) for v in several_values(values)]
        if not admitted:
            return
        new = list(map(self._wrapped, admitted))
        self._enqueue(new[-1])
        kept = self._table.own(self._scope.key, list)
        if kept is None:
            kept = []
            self._table.put(self._scope.key, kept)
        kept.extend(new)

    def __iter__(self) -> Iterator[Any]:
        kept = self._read()
        values = [] if kept is None else [self._live(entry) for entry in kept]
        return (value for value in values if value is not NOTHING)

    def _shown(self, kept: Any) -> str:
        return repr([value for entry in kept or () if (value := self._live(entry)) is not NOTHING])

    def _refuse_value(self, *_: Any) -> NoReturn:
        raise ConfigError(
            "a ListState has no .value: read it with for, list() or len(), write it with append, extend or clear"
        )

    value = property(_refuse_value, _refuse_value)

    def _read(self) -> list[Any] | None:
        """What is kept, renewed if that is what a read does."""
        kept: list[Any] | None = self._table.get(self._scope.key)
        if kept is not None and self._renews:
            live = [self._renewed(entry) for entry in kept if self._is_live(entry)]
            if live:
                self._table.put(self._scope.key, live)
            kept = live
        return kept

    def __len__(self) -> int:
        if self._ttl is not None:
            return sum(1 for _ in self)
        kept = self._table.get(self._scope.key)
        return 0 if kept is None else len(kept)

    def _expiry(self, entry: Any) -> Milliseconds:
        # Not that of the last one: the clock may have been set back, or be that of another machine by now.
        return max(int(expiry) for _, expiry in entry)

    def _size(self, entry: Any) -> int:
        return len(entry)

    def _drop_expired(self, key: Any, entry: Any, now: Milliseconds) -> None:
        self._table.put(key, [element for element in entry if element[1] > now])


class MapHandle(Handle):
    """``[]``, ``get``, ``in``, ``items``, ``keys``, ``values``, iteration, ``len``, ``del``, ``clear``."""

    __slots__ = ("key_place", "plain_keys")
    key_place: KeyPlace
    plain_keys: bool
    """Whether a key that equals a kept one is found as it is."""

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key, NOTHING)
        if value is NOTHING:
            raise KeyError(key)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        name = self._as_kept(key)
        kept = self._table.get(self._scope.key)
        if kept is None:
            return default
        entry = kept.get(name, NOTHING)
        value = entry if entry is NOTHING else self._live(entry)
        if value is NOTHING:
            return default
        if self._renews:
            self._table.own(self._scope.key, dict)[name] = self._renewed(entry)
        return value

    def _as_kept(self, key: Any) -> Any:
        """The key as a write would have kept it: 0.1 stands in a map of floats as the nearest float, a dict as a row. NOTHING for
        what no write would have taken; DataError if that can be a key nowhere, like a list, which a dict would not look for."""
        try:
            hash(key)
        except TypeError:
            return self.key_place.admitted(key)
        if self.plain_keys and not isinstance(key, pa.Scalar):
            return key
        try:
            return self.key_place.admitted(key)
        except DataError:
            return NOTHING

    def __setitem__(self, key: Any, value: Any) -> None:
        admitted_key = self.key_place.admitted(key)
        new = self._wrapped(None if value is None else self._admitted(value))
        self._enqueue(new)
        kept = self._table.own(self._scope.key, dict)
        if kept is None:
            kept = {}
            self._table.put(self._scope.key, kept)
        kept[admitted_key] = new

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        kept = self._table.own(self._scope.key, dict)
        del kept[self._as_kept(key)]
        if not kept:
            self.clear()

    def __contains__(self, key: Any) -> bool:
        return self.get(key, NOTHING) is not NOTHING

    def items(self) -> list[tuple[Any, Any]]:
        """A copy: the map may be changed while it is gone through."""
        kept = self._read()
        if kept is None:
            return []
        live = [(key, self._live(entry)) for key, entry in kept.items()]
        return [(key, value) for key, value in live if value is not NOTHING]

    def _read(self) -> dict[Any, Any] | None:
        """What is kept, renewed if that is what a read does."""
        kept: dict[Any, Any] | None = self._table.get(self._scope.key)
        if kept is not None and self._renews:
            live = {key: self._renewed(entry) for key, entry in kept.items() if self._is_live(entry)}
            if live:
                self._table.put(self._scope.key, live)
            kept = live
        return kept

    def _shown(self, kept: Any) -> str:
        live = {key: self._live(entry) for key, entry in (kept or {}).items()}
        return repr({key: value for key, value in live.items() if value is not NOTHING})

    def _refuse_value(self, *_: Any) -> NoReturn:
        raise ConfigError(
            "a MapState has no .value: it is used as a dict, like state[key] = value, in, get, items() or clear()"
        )

    value = property(_refuse_value, _refuse_value)

    def keys(self) -> list[Any]:
        return [key for key, _ in self.items()]

    def values(self) -> list[Any]:
        return [value for _, value in self.items()]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.items())

    def _expiry(self, entry: Any) -> Milliseconds:
        return max(int(expiry) for _, expiry in entry.values())

    def _size(self, entry: Any) -> int:
        return len(entry)

    def _drop_expired(self, key: Any, entry: Any, now: Milliseconds) -> None:
        self._table.put(key, {name: kept for name, kept in entry.items() if kept[1] > now})
