"""Many manifests become one: a sink that commits five times a second would leave 432,000 files a day.

A hundred of single checkpoints are folded into one, and a hundred of those into one that is left alone: so each name is written
three times in all, however long the job runs, and no manifest lists more than ten thousand checkpoints.
"""

import contextlib
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from cutwater.connectors.disk import Disk
from cutwater.connectors.manifest import Manifest, manifests_of, store_manifest
from cutwater.connectors.staging import Staging

FOLDED_AT_ONCE: Final = 100
LEVELS: Final = 2
MOST_FOLDS: Final = 10
"""In one look: a folder that was never folded is worked off little by little."""


class ManifestFolding:
    """Of one sink, in the driver, who alone writes manifests. Most of the time it only counts."""

    def __init__(self) -> None:
        self._until_next_look: defaultdict[tuple[Staging, str, str], int] = defaultdict(int)

    def written(self, disk: Disk, staging: Staging, incarnation: str, uid: str) -> None:
        """One more. What cannot be folded now stays as it is: nothing depends on it."""
        sink = (staging, incarnation, uid)
        self._until_next_look[sink] -= 1
        if self._until_next_look[sink] > 0:
            return
        folds = 0
        with contextlib.suppress(OSError, ValueError):
            folds = _fold_what_is_due(disk, staging, incarnation, uid)
        self._until_next_look[sink] = 1 if folds == MOST_FOLDS else FOLDED_AT_ONCE


def _fold_what_is_due(disk: Disk, staging: Staging, incarnation: str, uid: str) -> int:
    folds = 0
    for level in range(LEVELS):
        # The newest stays: whoever opens the sink asks for the last checkpoint and the attempt it is of.
        due = [each for each in manifests_of(staging, incarnation, uid)[:-1] if each.level == level]
        while len(due) >= FOLDED_AT_ONCE and folds < MOST_FOLDS:
            _fold(disk, staging, incarnation, uid, due[:FOLDED_AT_ONCE])
            due, folds = due[FOLDED_AT_ONCE:], folds + 1
    return folds


def _fold(disk: Disk, staging: Staging, incarnation: str, uid: str, manifests: Sequence[Manifest]) -> None:
    """Whoever dies in the middle leaves manifests that are listed twice: they are folded again, among others."""
    contents = [json.loads(each.path.read_bytes()) for each in manifests]
    first, last = min(each.first for each in manifests), manifests[-1].last
    path = staging.folded_manifest(incarnation, uid, first, last, manifests[-1].level + 1)
    names = [name for content in contents for name in content["files"]]
    store_manifest(disk, path, incarnation, uid, last, contents[-1]["attempt"], names)
    for each in manifests:
        disk.remove(each.path)
