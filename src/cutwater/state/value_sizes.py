"""What Python values take in memory, roughly: good enough to keep to a bound, and cheap enough to ask with each batch."""

from collections.abc import Iterable
from itertools import islice
from sys import getsizeof
from typing import Any

LOOKED_AT = 4
"""So many elements stand for all of a list or a map."""


def size_of(value: Any) -> int:
    """With all that is in it."""
    size = getsizeof(value)
    if isinstance(value, dict):
        return size + _of_elements(value, len(value)) + _of_elements(value.values(), len(value))
    if isinstance(value, list | tuple):
        step = len(value) // LOOKED_AT + 1
        return size + _of_elements(islice(value, 0, None, step), len(value))
    return size


def _of_elements(elements: Iterable[Any], count: int) -> int:
    seen = [size_of(element) for element in islice(elements, LOOKED_AT)]
    return sum(seen) * count // max(len(seen), 1)
