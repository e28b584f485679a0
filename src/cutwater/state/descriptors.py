"""State as users declare it on a function's class, and the binding of it to a store.

class Dedup(cw.KeyedProcess):
    seen = cw.ValueState("boolean", ttl="1h")
"""

from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import pyarrow as pa

from cutwater.dict_keys import as_key
from cutwater.duration import Duration, whole_milliseconds
from cutwater.errors import ConfigError
from cutwater.flow.ids import CheckpointId
from cutwater.flow.watermarks import Milliseconds
from cutwater.given_functions import checked_function
from cutwater.schema import TypeLike, arrow_type
from cutwater.state.backend import KeyedStateStore
from cutwater.state.collection_handles import ListHandle, MapHandle
from cutwater.state.declared import StateDeclaration, declared
from cutwater.state.expiry import with_expiry, without_expired
from cutwater.state.frozen import FrozenTable
from cutwater.state.handles import (
    AggregatingHandle,
    Handle,
    ReducingHandle,
    SingleHandle,
    ValueHandle,
)
from cutwater.state.key_scope import KeyScope
from cutwater.state.place import KeyPlace, Place
from cutwater.state.value_types import holds_list_or_map

RenewedOn = Literal["write", "read"]


class StateDescriptor(StateDeclaration):
    """One declared state. On an instance that is bound, the attribute is the handle of the current key's state.

    A ``ttl`` counts from the last write; with ``on="read"`` from the last write or read.
    """

    def __init__(self, type: TypeLike, *, ttl: Duration | None = None, on: RenewedOn = "write") -> None:
        kind = self.__class__.__name__
        self.type = arrow_type(type, f"{kind}'s type")
        self.ttl = None if ttl is None else whole_milliseconds(f"{kind}'s ttl", ttl)
        if on not in ("write", "read"):
            raise ConfigError(f"{kind}'s on={on!r} must be 'write' or 'read': what lets its ttl begin anew.")
        if on == "read" and ttl is None:
            raise ConfigError(f"{kind}'s on='read' says what lets a ttl begin anew; add ttl='1h', or leave it out.")
        self.on = on

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        raise ConfigError(
            f"{self._attribute_of(instance)} can be used in process and on_timer only: "
            "state belongs to the key that is being processed."
        )

    @property
    @abstractmethod
    def stored_type(self) -> pa.DataType:
        """What stands under each key in a snapshot."""

    @abstractmethod
    def bind(self, name: str, store: KeyedStateStore, uid: str, keys: pa.Schema, scope: KeyScope) -> Handle:
        """Create the table of that name and the handle on it."""

    def _entry_type(self) -> pa.DataType:
        if self.ttl is None:
            return self.type
        return with_expiry(self.type)

    def _expiry(self) -> dict[str, Any]:
        """What its handle is told of it."""
        return {"ttl": self.ttl, "renews": self.on == "read"}


class ValueState(StateDescriptor):
    """One value for each key: ``.value``, ``.clear()``."""

    _handle: type[SingleHandle] = ValueHandle

    @property
    def stored_type(self) -> pa.DataType:
        return self._entry_type()

    def bind(self, name: str, store: KeyedStateStore, uid: str, keys: pa.Schema, scope: KeyScope) -> Handle:
        table = store.rows(name, keys, self.stored_type)
        return self._handle(table, scope, Place(uid, repr(name), self.type), self.type, **self._expiry())


class ListState(StateDescriptor):
    """A list for each key: ``.append``, ``.extend``, iteration, ``len``, ``.clear()``. A ttl counts for each element."""

    @property
    def stored_type(self) -> pa.DataType:
        return pa.list_(self._entry_type())

    def bind(self, name: str, store: KeyedStateStore, uid: str, keys: pa.Schema, scope: KeyScope) -> Handle:
        table = store.rows(name, keys, self.stored_type)
        return ListHandle(table, scope, Place(uid, repr(name), self.type), self.type, **self._expiry())


class MapState(StateDescriptor):
    """A dict for each key. A ttl counts for each entry."""

    def __init__(
        self, key_type: TypeLike, value_type: TypeLike, *, ttl: Duration | None = None, on: RenewedOn = "write"
    ) -> None:
        super().__init__(value_type, ttl=ttl, on=on)
        self.key_type = arrow_type(key_type, "MapState's key type")
        if holds_list_or_map(self.key_type):
            raise ConfigError(f"MapState({key_type!r}, ...): a list or a map cannot be a map's key, nor be in it.")

    @property
    def stored_type(self) -> pa.DataType:
        return pa.map_(self.key_type, self._entry_type())

    def bind(self, name: str, store: KeyedStateStore, uid: str, keys: pa.Schema, scope: KeyScope) -> Handle:
        table = store.rows(name, keys, self.stored_type)
        handle = MapHandle(table, scope, Place(uid, repr(name), self.type), self.type, **self._expiry())
        handle.key_place = KeyPlace(uid, repr(name), self.key_type)
        handle.plain_keys = pa.types.is_integer(self.key_type) or pa.types.is_string(self.key_type)
        return handle


class ReducingState(ValueState):
    """A value that ``.add(x)`` folds into: ``ReducingState("long", lambda a, b: a + b)``."""

    _handle = ReducingHandle

    def __init__(
        self,
        type: TypeLike,
        reduce: Callable[[Any, Any], Any],
        *,
        ttl: Duration | None = None,
        on: RenewedOn = "write",
    ) -> None:
        super().__init__(type, ttl=ttl, on=on)
        self._reduce = checked_function("ReducingState", reduce, "reduced", "value")

    def bind(self, name: str, store: KeyedStateStore, uid: str, keys: pa.Schema, scope: KeyScope) -> Handle:
        handle = super().bind(name, store, uid, keys, scope)
        assert isinstance(handle, ReducingHandle)
        handle.reduce = self._reduce
        return handle


class AggregatingState(ValueState):
    """An accumulator of ``type``: ``create()`` makes one, ``add(accumulator, x)`` gives the next, ``result`` its outcome."""

    _handle = AggregatingHandle

    def __init__(
        self,
        type: TypeLike,
        create: Callable[[], Any],
        add: Callable[[Any, Any], Any],
        result: Callable[[Any], Any] = lambda accumulator: accumulator,
        *,
        ttl: Duration | None = None,
        on: RenewedOn = "write",
    ) -> None:
        super().__init__(type, ttl=ttl, on=on)
        self._create = checked_function("AggregatingState, create", create)
        self._add = checked_function("AggregatingState, add", add, "accumulator", "value")
        self._result = checked_function("AggregatingState, result", result, "accumulator")

    def bind(self, name: str, store: KeyedStateStore, uid: str, keys: pa.Schema, scope: KeyScope) -> Handle:
        handle = super().bind(name, store, uid, keys, scope)
        assert isinstance(handle, AggregatingHandle)
        handle.create, handle.accumulate, handle.result = self._create, self._add, self._result
        return handle


def declared_states(function: type) -> dict[str, StateDescriptor]:
    """The states declared on a class and its bases, by name."""
    return declared(function, StateDescriptor)  # type: ignore[type-abstract]


class BoundStates:
    """The states of one function instance. The operator sets ``key`` before each call, and tends after each batch and each step
    of timers."""

    __slots__ = ("_as_key", "_handles", "_scope", "_store")

    def __init__(self, store: KeyedStateStore, scope: KeyScope, handles: list[Handle], keys: pa.Schema) -> None:
        self._store = store
        self._scope = scope
        self._handles = handles
        self._as_key = as_key(keys.field(0).type if len(keys) == 1 else pa.struct(list(keys)))

    @property
    def key(self) -> Any:
        return self._scope.key

    @key.setter
    def key(self, key: Any) -> None:
        self._scope.key = key if self._as_key is None else self._as_key(key)

    @property
    def key_holder(self) -> "BoundStates | KeyScope":
        """Where a loop over rows sets ``key``: the scope itself, if the key needs no change, costs no call for each row."""
        return self._scope if self._as_key is None else self

    def leave(self) -> None:
        """No key is processed from here on: state may not be used until ``key`` is set again."""
        with suppress(AttributeError):
            del self._scope.key

    def freeze(self, checkpoint: CheckpointId | None = None) -> list[FrozenTable]:
        """All tables of the store as they are now, without what has expired."""
        expiring = {handle.name for handle in self._handles if handle.expires}
        now = self._scope.now()
        frozen = self._store.freeze(checkpoint)
        return [without_expired(table, now) if table.name in expiring else table for table in frozen]

    def tend(self) -> None:
        for handle in self._handles:
            handle.sweep()
        self._store.tend()


def bind_states(
    function: object, store: KeyedStateStore, uid: str, keys: pa.Schema, now: Callable[[], Milliseconds]
) -> BoundStates:
    """Put a handle in place of each state that the function's class declares.

    After what is restored was given to the store. ``key`` is then the key column's value, or a tuple when ``keys`` are several.
    """
    scope = KeyScope(now)
    handles: list[Handle] = []
    for name, descriptor in declared_states(type(function)).items():
        handle = descriptor.bind(name, store, uid, keys, scope)
        # In the instance's own dict it is found without a call: state is touched for every row.
        function.__dict__[name] = handle
        handles.append(handle)
    return BoundStates(store, scope, handles, keys)
