"""Splits that were read to their end: kept for ever, so that none is found anew, and therefore in few bytes.

A watched folder has as many of them as files ever came. In a checkpoint they stand in packed entries among the plain ones::

    {"split": "<base 85 of zlib of a JSON list of splits>", "position": null, "ended": true, "packed": 1}

A packed entry moves like a plain one when the parallelism changes: whoever holds a split that ended has nothing to do with it.
"""

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

Json = Any

SEGMENT: Final = 4096
"""So many are packed once and for all; the rest is packed anew for each checkpoint."""
FEWEST: Final = 64
"""Fewer are left for people to read."""
VERSION: Final = 1


class EndedSplits:
    """Used on the subtask's loop; what ``frozen`` returns may be called on another thread."""

    def __init__(self) -> None:
        self._segments: list[Json] = []
        self._loose: list[Json] = []

    def add(self, entry: Json) -> None:
        """``{"split", "position", "ended"}``"""
        self._loose.append(entry)
        if len(self._loose) == SEGMENT:
            self._segments.append(_packed(self._loose))
            self._loose = []

    def plain(self) -> list[Json]:
        """All of them, one entry for each."""
        return [*unpacked(self._segments), *self._loose]

    def frozen(self) -> Callable[[], list[Json]]:
        """For a checkpoint: those that there are now."""
        segments, loose = tuple(self._segments), tuple(self._loose)
        return lambda: [*segments, *([_packed(loose)] if len(loose) >= FEWEST else loose)]


def unpacked(entries: Iterable[Json]) -> Iterator[Json]:
    """The entries of a checkpoint, one for each split. The position of an ended split is not asked for, and may be gone."""
    for entry in entries:
        if "packed" in entry:
            yield from map(_ended, _unpacked(entry))
        else:
            yield entry


def _ended(split: Json) -> Json:
    return {"split": split, "position": None, "ended": True}


def _packed(entries: Sequence[Json]) -> Json:
    # in order, so that neighbours share most of their characters
    texts = sorted(json.dumps(entry["split"], separators=(",", ":")) for entry in entries)
    packed = base64.b85encode(zlib.compress(f"[{','.join(texts)}]".encode())).decode()
    return {"split": packed, "position": None, "ended": True, "packed": VERSION}


def _unpacked(entry: Json) -> list[Json]:
    if entry["packed"] != VERSION:
        raise ValueError(f"ended splits are packed in form {entry['packed']!r}; this version reads form {VERSION}")
    splits: list[Json] = json.loads(zlib.decompress(base64.b85decode(entry["split"])))
    return splits
