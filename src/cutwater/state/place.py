"""Where a state is, for messages; and the check of what is written to it."""

from typing import Any

import pyarrow as pa

from cutwater.dict_keys import as_key
from cutwater.errors import DataError
from cutwater.exact_arrays import MISFITS
from cutwater.plain_values import plain_value
from cutwater.rows import shortened
from cutwater.state.value_types import Admit, admission


class Place:
    """What handles ask before they write."""

    __slots__ = ("_admit", "_type", "_where")

    def __init__(self, uid: str, state: str, data_type: pa.DataType) -> None:
        self._where = f"{uid}: state {state}"
        self._type = data_type
        self._admit: Admit = admission(data_type)

    def admitted(self, value: Any) -> Any:
        try:
            return self._admit(value)
        except MISFITS:
            return self._admitted_as_plain(value)

    def folded(self, before: Any, after: Any) -> Any:
        """What a function made ``after`` of ``before``."""
        if after is None and before is not None:
            raise DataError(
                f"{self._where}: its function gave None, where it held {shortened(before)}. It must return the new value (is a "
                "return missing?); clear() empties the state."
            )
        return after

    def _admitted_as_plain(self, value: Any) -> Any:
        """A value of numpy or Arrow that stands for one that fits."""
        try:
            return self._admit(plain_value(value, self._type))
        except MISFITS as error:
            raise DataError(
                f"{self._where} is {self._type}, which cannot hold {shortened(value)} ({type(value).__name__}): {error}"
            ) from None


class KeyPlace(Place):
    """Of the keys of a map that is a state."""

    __slots__ = ("_as_key",)

    def __init__(self, uid: str, state: str, data_type: pa.DataType) -> None:
        super().__init__(uid, f"{state}, the type of its keys,", data_type)
        self._as_key = as_key(data_type)

    def admitted(self, value: Any) -> Any:
        key = super().admitted(value)
        return key if self._as_key is None else self._as_key(key)
