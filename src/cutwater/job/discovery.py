"""New splits of unbounded sources: asked for beside the attempt, dealt out to its subtasks."""

import json
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cutwater.connectors.source import Source
from cutwater.control.messages import AssignSplits, ToSubtask
from cutwater.flow.ids import SubtaskId
from cutwater.job.deployment import Deployment, as_stored
from cutwater.operators.user_code import own_line
from cutwater.subtask.ended_splits import unpacked

Json = Any

DISCOVERY_SECONDS = 1.0
"""From the end of one look to the beginning of the next."""


@dataclass(frozen=True, slots=True)
class _Looked:
    uid: str
    found: Sequence[Json] | BaseException


class Discovery:
    """Called on the attempt's thread, except for ``Source.discover`` itself, which gets a thread for each call.

    One call at a time for each source. A slow one delays neither checkpoints nor other sources nor the attempt's end:
    nobody waits for it, and what it finds when the attempt is over is found again by the next one.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        widths: Mapping[str, int],
        deployment: Deployment,
        *,
        send: Callable[[SubtaskId, ToSubtask], None],
        log: Callable[[str], None],
    ) -> None:
        """``widths``: how many subtasks read each source."""
        self._sources = {uid: source for uid, source in sources.items() if not source.bounded}
        self._widths = widths
        self._deployment = deployment
        self._send = send
        self._log = log
        self._due = dict.fromkeys(self._sources, 0.0)
        self._asked: set[str] = set()
        self._looked: queue.SimpleQueue[_Looked] = queue.SimpleQueue()
        self._known: dict[str, dict[str, Json]] = {uid: {} for uid in self._sources}
        for subtask, entries in deployment.splits.items():
            if subtask.vertex in self._known:
                self._known[subtask.vertex].update(
                    (_key(entry["split"]), entry["split"]) for entry in unpacked(entries)
                )

    def tick(self, now: float) -> None:
        """Deal out what was found, and look again where it is time to."""
        while not self._looked.empty():
            looked = self._looked.get()
            self._asked.discard(looked.uid)
            self._due[looked.uid] = now + DISCOVERY_SECONDS
            if isinstance(looked.found, BaseException):
                self._log(_failure(looked.uid, looked.found))
            else:
                self._deal(looked.uid, looked.found)
        for uid, source in self._sources.items():
            if uid not in self._asked and now >= self._due[uid]:
                self._asked.add(uid)
                known = list(self._known[uid].values())
                threading.Thread(
                    target=self._look, args=(uid, source, known), name=f"cutwater-discover-{uid}", daemon=True
                ).start()

    def _look(self, uid: str, source: Source, known: Sequence[Json]) -> None:
        try:
            found: Sequence[Json] | BaseException = [as_stored(split) for split in source.discover(known)]
        except BaseException as error:
            found = error
        self._looked.put(_Looked(uid, found))

    def _deal(self, uid: str, found: Sequence[Json]) -> None:
        """Each split goes to one subtask, once, however often it is found."""
        known, width = self._known[uid], self._widths[uid]
        dealt: dict[SubtaskId, list[Json]] = {}
        for split in found:
            if (key := _key(split)) not in known:
                dealt.setdefault(SubtaskId(uid, len(known) % width), []).append({"split": split, "position": None})
                known[key] = split
        for subtask, entries in dealt.items():
            self._deployment.splits.setdefault(subtask, []).extend(entries)
            self._send(subtask, AssignSplits(uid, tuple(entries)))


def _key(split: Json) -> str:
    return json.dumps(split, sort_keys=True)


def _failure(uid: str, error: BaseException) -> str:
    line = own_line(error)
    at = f" ({line})" if line else ""
    return f"{uid}{at}: looking for new splits failed: {type(error).__name__}: {error}"
