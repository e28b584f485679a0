"""At most once: which reserved position of a split is the latest."""

import json
from collections.abc import Iterable
from typing import Any

Json = Any


def latest_positions(reservations: Iterable[Json]) -> dict[str, list[Json]]:
    """Per uid [{"split", "position"}], one for each split: that of the highest attempt, and there of the highest number.

    A split moves between subtasks when attempts change, so older reservations of other subtasks may still name it.
    """
    latest: dict[str, dict[str, Json]] = {}
    for each in sorted(reservations, key=lambda each: (each["attempt"], each["number"])):
        for entry in each["positions"]:
            latest.setdefault(each["uid"], {})[json.dumps(entry["split"], sort_keys=True)] = entry
    return {uid: list(by_split.values()) for uid, by_split in latest.items()}
