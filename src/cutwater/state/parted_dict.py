"""Many entries in several dicts: one that grows moves all that it holds at once, which takes 0.3 s with ten million."""

from collections.abc import Iterable, Iterator
from itertools import chain
from math import log2
from typing import Any

MOST_IN_ONE = 1 << 16
"""Up to so many are in one dict: that is faster, and they are few enough to be moved into several at once."""

DICTS = 64
SLOTS = 4093
"""A prime: the hash of a number is the number, and all of them may be multiples of something."""
_DICT_OF_SLOT = [int(DICTS * log2(1 + slot / SLOTS)) for slot in range(SLOTS)]
"""The last dict has twice as many slots as the first one, so that they do not all grow at the same time."""


class PartedDict:
    """What row tables ask of a dict."""

    __slots__ = ("dicts", "of_slot")

    def __init__(self, items: Iterable[tuple[Any, Any]] = ()) -> None:
        self.dicts: list[dict[Any, Any]] = [{} for _ in range(DICTS)]
        self.of_slot = [self.dicts[number] for number in _DICT_OF_SLOT]
        """The dict of a key is that of ``hash(key) % SLOTS``, for those who ask too often for a call."""
        self.update(items)

    def __len__(self) -> int:
        return sum(map(len, self.dicts))

    def __bool__(self) -> bool:
        return any(self.dicts)

    def __contains__(self, key: Any) -> bool:
        return key in self.of_slot[hash(key) % SLOTS]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.of_slot[hash(key) % SLOTS][key] = value

    def get(self, key: Any, default: Any) -> Any:
        return self.of_slot[hash(key) % SLOTS].get(key, default)

    def pop(self, key: Any, default: Any) -> Any:
        return self.of_slot[hash(key) % SLOTS].pop(key, default)

    def update(self, items: Iterable[tuple[Any, Any]]) -> None:
        of_slot = self.of_slot
        for key, value in items:
            of_slot[hash(key) % SLOTS][key] = value

    def items(self) -> Iterator[tuple[Any, Any]]:
        return chain.from_iterable(map(dict.items, self.dicts))


Layer = dict[Any, Any] | PartedDict


def parted_if_large(layer: Layer) -> Layer:
    """A copy in several dicts, if this one has become too large for one."""
    return PartedDict(layer.items()) if isinstance(layer, dict) and len(layer) > MOST_IN_ONE else layer


def taken_out(layer: Layer, most: int) -> Iterator[tuple[Any, Any]]:
    """Entries, each removed before it is given."""
    for one in layer.dicts if isinstance(layer, PartedDict) else [layer]:
        here = min(most, len(one))
        most -= here
        for _ in range(here):
            yield one.popitem()
