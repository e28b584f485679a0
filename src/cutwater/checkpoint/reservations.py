"""At most once: positions that are reserved before the rows behind them are emitted."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cutwater.checkpoint.attempt_log import AttemptLog
from cutwater.checkpoint.completed import StateOwner
from cutwater.errors import DamagedCheckpoint

Json = Any


@dataclass(frozen=True, slots=True)
class ReservedSource:
    """``positions``: [{"split", "position"}], one for each of its splits. ``begun``: rows of it may have been emitted."""

    owner: StateOwner
    positions: tuple[Json, ...]
    begun: bool


class Reservations:
    """Of the current incarnation."""

    def __init__(self, attempts: AttemptLog) -> None:
        self._attempts = attempts
        self._storage = attempts.storage
        self._layout = attempts.layout

    def begin(self, sources: Mapping[str, ReservedSource]) -> None:
        """Before anything of the attempt runs: what it reads, all of it at once. Whatever was reserved before counts no more:
        a split that were missing here, because its subtask had not reserved anything yet, might be cut anew and overlap."""
        record = self._attempts.required()
        content = json.dumps(
            {"attempt": record.attempt, "sources": {uid: asdict(each) for uid, each in sources.items()}}
        )
        self._storage.put(self._layout.sources_of(record.incarnation, record.attempt), content.encode())

    def store(self, uid: str, index: int, number: int, positions: Sequence[Json]) -> None:
        """Durable before the rows behind ``positions`` are emitted.

        Each call replaces the subtask's last one, so ``positions`` names every split that the subtask reads."""
        record = self._attempts.required()
        self._attempts.require_held()
        content = json.dumps({"uid": uid, "attempt": record.attempt, "number": number, "positions": list(positions)})
        name = self._layout.reservation(record.incarnation, uid, index, record.attempt)
        self._storage.put(name, content.encode())

    def are_there(self) -> bool:
        return bool(self._names())

    def begun(self) -> bool:
        """Whether an attempt of this incarnation ran at most once."""
        record = self._attempts.current()
        return record is not None and any(True for _ in self._storage.list(self._layout.sources(record.incarnation)))

    def latest(self) -> dict[str, ReservedSource]:
        """By uid, with the latest reserved position of every split. Sources that nothing was emitted of are not among them."""
        names = self._names()
        if not names:
            return {}
        record = self._attempts.required()
        begun = list(self._storage.list(self._layout.sources(record.incarnation)))
        if not begun:
            raise DamagedCheckpoint(
                f"{self._layout.sources(record.incarnation)} in {self._storage.url} is empty, but positions are reserved: "
                f"which sources they belong to is lost. Bring it back from a copy, or start over with restore='fresh'."
            )
        start = self._attempts.read(begun[-1], decode_sources)
        return latest_positions(*start, [self._attempts.read(name, json.loads) for name in names])

    def _names(self) -> list[str]:
        record = self._attempts.current()
        return list(self._storage.list(self._layout.reservations(record.incarnation))) if record is not None else []


def decode_sources(content: bytes) -> tuple[int, dict[str, ReservedSource]]:
    """The attempt, and what it began with."""
    value = json.loads(content)
    return value["attempt"], {
        uid: ReservedSource(StateOwner(**each["owner"]), tuple(each["positions"]), each["begun"])
        for uid, each in value["sources"].items()
    }


def latest_positions(
    attempt: int, sources: Mapping[str, ReservedSource], reservations: Iterable[Json]
) -> dict[str, ReservedSource]:
    """What ``attempt`` began with, and behind it what was reserved since: of each split, the position that was reserved last."""
    latest: dict[str, dict[str, Json]] = {
        uid: _by_split(source.positions) for uid, source in sources.items() if source.begun
    }
    since = [each for each in reservations if each["attempt"] >= attempt]
    for each in sorted(since, key=lambda each: (each["attempt"], each["number"])):
        uid = each["uid"]
        latest.setdefault(uid, _by_split(sources[uid].positions)).update(_by_split(each["positions"]))
    return {
        uid: ReservedSource(sources[uid].owner, tuple(by_split.values()), begun=True)
        for uid, by_split in latest.items()
    }


def _by_split(positions: Iterable[Json]) -> dict[str, Json]:
    return {json.dumps(entry["split"], sort_keys=True): entry for entry in positions}
