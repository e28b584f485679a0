"""State that belongs to a subtask and not to a key, as users declare it on a function's class.

class Model(cw.Process):
    weights = cw.ListOperatorState("double")
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import pyarrow as pa

from cutwater.errors import ConfigError, DataError, RestoreError, SchemaError
from cutwater.schema import TypeLike, arrow_type
from cutwater.state.declared import StateDeclaration, declared
from cutwater.state.json_values import from_json, to_json
from cutwater.state.place import KeyPlace, Place
from cutwater.state.value_types import handing_out, holds_list_or_map, several_values

Json = Any


class OperatorStateDescriptor(StateDeclaration):
    """One declared state. On an instance that is open, the attribute is the handle."""

    inline_key: str
    """How it moves when the parallelism changes: see ``checkpoint.restore``."""

    def __init__(self, type: TypeLike) -> None:
        self.type = _type_for_json(type, f"{self.__class__.__name__}'s type")

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None:
            return self
        raise ConfigError(
            f"{self._attribute_of(instance)} can be used from open on: before, there is no subtask whose state it is."
        )

    @abstractmethod
    def bind(self, name: str, uid: str) -> "OperatorHandle": ...


def _type_for_json(data_type: TypeLike, where: str) -> pa.DataType:
    read = arrow_type(data_type, where)
    try:
        to_json(read)
    except TypeError as error:
        raise SchemaError(f"{where}: {error}") from None
    return read


class ListOperatorState(OperatorStateDescriptor):
    """A list of each subtask: ``.append``, ``.extend``, iteration, ``len``, ``[i]``, ``.clear()``.

    At another parallelism the elements of all are dealt out anew, one after the other.
    """

    inline_key = "list_state"

    def bind(self, name: str, uid: str) -> "OperatorHandle":
        return ListOperatorHandle(Place(uid, repr(name), self.type), self.type)


class UnionOperatorState(ListOperatorState):
    """The same, but after every restore each subtask gets the elements of all: ``open`` is where to keep those it wants."""

    inline_key = "union_state"


class BroadcastState(OperatorStateDescriptor):
    """A dict that is the same in every subtask, because every one gets the same records: filled in ``process_broadcast`` only."""

    inline_key = "broadcast_state"

    def __init__(self, key_type: TypeLike, value_type: TypeLike) -> None:
        super().__init__(value_type)
        self.key_type = _type_for_json(key_type, "BroadcastState's key type")
        if holds_list_or_map(self.key_type):
            raise ConfigError(f"BroadcastState({key_type!r}, ...): a list or a map cannot be a key, nor be in it.")

    def bind(self, name: str, uid: str) -> "OperatorHandle":
        keys = KeyPlace(uid, repr(name), self.key_type)
        return BroadcastHandle(Place(uid, repr(name), self.type), self.type, keys, self.key_type)


class OperatorHandle(ABC):
    @abstractmethod
    def frozen(self) -> Callable[[], Json]:
        """As it is now; whoever calls the result, on another thread, gets it as JSON."""

    @abstractmethod
    def restore(self, stored: Json) -> None: ...


class ListOperatorHandle(OperatorHandle, Sequence[Any]):
    def __init__(self, place: Place, data_type: pa.DataType) -> None:
        self._place = place
        self._type = data_type
        self._copy_out = handing_out(data_type)
        self._values: list[Any] = []

    def append(self, value: Any) -> None:
        self._values.append(self._place.admitted(value))

    def extend(self, values: Iterable[Any]) -> None:
        self._values.extend([self._place.admitted(value) for value in several_values(values)])

    def clear(self) -> None:
        self._values = []

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, at: Any) -> Any:
        found = self._values[at]
        if self._copy_out is None:
            return found
        return [self._copy_out(each) for each in found] if isinstance(at, slice) else self._copy_out(found)

    def __iter__(self) -> Iterator[Any]:
        copy = self._copy_out
        return iter(list(self._values) if copy is None else [copy(value) for value in self._values])

    def __repr__(self) -> str:
        return f"operator state {self._values!r}"

    def frozen(self) -> Callable[[], Json]:
        values, convert = list(self._values), to_json(self._type)
        return lambda: [convert(value) for value in values]

    def restore(self, stored: Json) -> None:
        self._values.extend(map(from_json(self._type), stored))


class BroadcastHandle(OperatorHandle, MutableMapping[Any, Any]):
    def __init__(self, place: Place, data_type: pa.DataType, keys: KeyPlace, key_type: pa.DataType) -> None:
        self._place, self._type, self._keys, self._key_type = place, data_type, keys, key_type
        self._copy_out = handing_out(data_type)
        self._values: dict[Any, Any] = {}
        self.writable = False
        """While a broadcast record is processed: only those are the same everywhere."""

    def __getitem__(self, key: Any) -> Any:
        found = self._values[self._as_kept(key)]
        return found if self._copy_out is None or found is None else self._copy_out(found)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._refuse_elsewhere()
        self._values[self._keys.admitted(key)] = None if value is None else self._place.admitted(value)

    def __delitem__(self, key: Any) -> None:
        self._refuse_elsewhere()
        del self._values[self._as_kept(key)]

    def _as_kept(self, key: Any) -> Any:
        """The key as a write would have kept it; KeyError for what no write would have taken."""
        try:
            return self._keys.admitted(key)
        except DataError:
            raise KeyError(key) from None

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._values))

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"BroadcastState({self._values!r})"

    def _refuse_elsewhere(self) -> None:
        if not self.writable:
            raise ConfigError(
                "a BroadcastState is written in process_broadcast only: elsewhere each subtask sees other records, and what they "
                "write would differ"
            )

    def frozen(self) -> Callable[[], Json]:
        values = dict(self._values)
        key, value = to_json(self._key_type), to_json(self._type)
        return lambda: [[key(k), value(v)] for k, v in values.items()]

    def restore(self, stored: Json) -> None:
        key, value = from_json(self._key_type), from_json(self._type)
        # As a write keeps it: NaN is found only if it is the one that is looked for.
        self._values = {self._keys.admitted(key(k)): value(v) for k, v in stored}


def declared_operator_states(function: type) -> dict[str, OperatorStateDescriptor]:
    return declared(function, OperatorStateDescriptor)  # type: ignore[type-abstract]


class BoundOperatorStates:
    """The operator states of one function instance."""

    def __init__(self, function: object, uid: str, parts: Sequence[Mapping[str, Json]]) -> None:
        """``parts``: what the restored checkpoint holds inline for this subtask."""
        self._descriptors = declared_operator_states(type(function))
        self._handles = {name: descriptor.bind(name, uid) for name, descriptor in self._descriptors.items()}
        function.__dict__.update(self._handles)
        for part in parts:
            self._restore(part, uid)

    def _restore(self, part: Mapping[str, Json], uid: str) -> None:
        for name, value in part.get("broadcast_state", {}).items():
            self._handle(name, "broadcast_state", uid).restore(value)
        for kind in ("list_state", "union_state"):
            for entry in part.get(kind, ()):
                self._handle(entry["state"], kind, uid).restore([entry["value"]])

    def _handle(self, name: str, kind: str, uid: str) -> OperatorHandle:
        descriptor = self._descriptors.get(name)
        if descriptor is None or descriptor.inline_key != kind:
            raise RestoreError(
                f"{uid}: the checkpoint holds {kind} {name!r}, which the function does not declare. Declare it as it was, or give "
                f"the operator another uid and drop this one with allow_non_restored_state=True."
            )
        return self._handles[name]

    @property
    def broadcast(self) -> list[BroadcastHandle]:
        return [handle for handle in self._handles.values() if isinstance(handle, BroadcastHandle)]

    def frozen(self) -> Callable[[], dict[str, Json]] | None:
        """As they are now, for the snapshot's inline part; None: there are none."""
        if not self._handles:
            return None
        now = [(self._descriptors[name].inline_key, name, handle.frozen()) for name, handle in self._handles.items()]

        def inline() -> dict[str, Json]:
            found: dict[str, Json] = {}
            for kind, name, values in now:
                if kind == "broadcast_state":
                    found.setdefault(kind, {})[name] = values()
                else:
                    found.setdefault(kind, []).extend({"state": name, "value": value} for value in values())
            return found

        return inline
