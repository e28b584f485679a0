"""Layers of row tables that snapshots see, and that are never changed for it: where they become many, some are copied into one.

As a rule no snapshot is being read for long, and layers are merged into the lowest one then. Where there is always one, as the
storage takes longer than the time between two checkpoints, each cut would leave one more layer for every read to look into.
"""

from collections.abc import Sequence
from itertools import chain, islice

from cutwater.state.parted_dict import Layer, parted_if_large

MOST_LAYERS = 8


def run_to_join(sizes: Sequence[int]) -> slice | None:
    """Which layers with so many entries, newest first, are to become one: neighbours of which none is much larger than those
    before it, so that an entry is copied again only into something larger. None: they are few, or grow by themselves."""
    if len(sizes) <= MOST_LAYERS:
        return None
    for first in range(len(sizes)):
        total, end = sizes[first], first + 1
        while end < len(sizes) and sizes[end] <= 2 * total:
            total += sizes[end]
            end += 1
        if end - first > 1:
            return slice(first, end)
    return None


class JoiningLayers:
    """Neighbours, newest first, that become one."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._layers = tuple(layers)
        self._joined: Layer = {}
        self._rest = chain.from_iterable(layer.items() for layer in reversed(self._layers))

    def step(self, most: int) -> bool:
        """Copies so many entries. Whether these were the last."""
        part = list(islice(self._rest, most))
        self._joined.update(part)
        self._joined = parted_if_large(self._joined)
        return len(part) < most

    def replaced_in(self, layers: Sequence[Layer]) -> tuple[Layer, ...]:
        """The layers among which they are, with the one in their place."""
        at = next(at for at, layer in enumerate(layers) if layer is self._layers[0])
        return (*layers[:at], self._joined, *layers[at + len(self._layers) :])
