"""At most once: positions that are reserved before the rows behind them are emitted."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from cutwater.checkpoint.attempt_log import AttemptLog

Json = Any


class Reservations:
    """Of the current incarnation. Positions are [{"split", "position"}]."""

    def __init__(self, attempts: AttemptLog) -> None:
        self._attempts = attempts
        self._storage = attempts.storage
        self._layout = attempts.layout

    def store(self, uid: str, index: int, number: int, positions: Sequence[Json]) -> None:
        """Durable before the rows behind ``positions`` are emitted.

        Each call replaces the subtask's last one, so ``positions`` names every split that the subtask reads."""
        record = self._attempts.required()
        content = json.dumps({"uid": uid, "attempt": record.attempt, "number": number, "positions": list(positions)})
        name = self._layout.reservation(record.incarnation, uid, index, record.attempt)
        self._storage.put(name, content.encode())

    def are_there(self) -> bool:
        return bool(self._names())

    def latest(self) -> dict[str, list[Json]]:
        """Per uid the latest reserved position of every split."""
        return latest_positions([self._attempts.read(name, json.loads) for name in self._names()])

    def _names(self) -> list[str]:
        record = self._attempts.current()
        return list(self._storage.list(self._layout.reservations(record.incarnation))) if record is not None else []


def latest_positions(reservations: Iterable[Json]) -> dict[str, list[Json]]:
    """Per uid [{"split", "position"}], one for each split: that of the highest attempt, and there of the highest number.

    A split moves between subtasks when attempts change, so older reservations of other subtasks may still name it.
    """
    latest: dict[str, dict[str, Json]] = {}
    for each in sorted(reservations, key=lambda each: (each["attempt"], each["number"])):
        for entry in each["positions"]:
            latest.setdefault(each["uid"], {})[json.dumps(entry["split"], sort_keys=True)] = entry
    return {uid: list(by_split.values()) for uid, by_split in latest.items()}
