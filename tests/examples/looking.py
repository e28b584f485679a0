"""A pipeline that is taken through its input by hand, so that one can look at what its checkpoints hold."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import cutwater as cw
from cutwater.checkpoint.completed import CompletedCheckpoint
from cutwater.checkpoint.events import ManualTriggerRequested, RequestId
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.statistics import CheckpointInfo
from cutwater.checkpoint.stored_tables import RestoredTables
from cutwater.connectors.source import Source
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.testing.clock import ManualClock
from cutwater.testing.script import Mark, Playback, ScriptedSource
from cutwater.testing.simulation import Choose, Simulation, first


class LookedAt:
    def __init__(self, simulation: Simulation, playbacks: Mapping[str, Playback]) -> None:
        self.simulation = simulation
        self._playbacks = playbacks
        self._requests = 0

    def pass_all_marks(self) -> None:
        """Marks then only part one batch from the next."""
        for playback in self._playbacks.values():
            playback.passed = {at for at, item in enumerate(playback.items) if isinstance(item, Mark)}

    def trigger(self) -> RequestId:
        self._requests += 1
        request = RequestId(self._requests)
        self.simulation.driver.handle(ManualTriggerRequested(request))
        return request

    def completed(self, request: RequestId) -> CheckpointInfo:
        info = self.simulation.answers[request]
        assert isinstance(info, CheckpointInfo), info
        return info

    def run_to_end(self) -> None:
        while not self.simulation.finished:
            if not self.simulation.step():
                assert self.simulation.advance_to_next_timer(), "the pipeline stands still"

    @property
    def latest(self) -> CompletedCheckpoint:
        return self.simulation.store.completed()[-1]

    def stored(self, uid: str) -> list[dict[str, Any]]:
        """The rows of every state that the latest checkpoint holds of one operator, over all its subtasks."""
        rows: list[dict[str, Any]] = []
        for record in self.latest.subtasks:
            for operator in record.snapshot.operators:
                if operator.uid == uid:
                    groups = KeyGroupRange(0, self.latest.max_parallelism - 1)
                    tables = RestoredTables([], operator.tables, groups, storage=self.simulation.store.storage)
                    rows += [
                        row for name in tables.tables() for each in tables.batches(name) for row in each.to_pylist()
                    ]
        return rows

    def positions(self, uid: str) -> list[Any]:
        return [
            operator.inline
            for record in self.latest.subtasks
            for operator in record.snapshot.operators
            if operator.uid == uid
        ]


@contextmanager
def looked_at(
    pipeline: Callable[[cw.Environment], Any],
    scripts: Mapping[str, Sequence[Any]],
    folder: Path,
    *,
    parallelism: int = 1,
    mode: str = "exactly_once",
    unaligned: bool = False,
    choose: Choose = first,
) -> Iterator[LookedAt]:
    by_hand = cw.Checkpointing("1 day", storage=f"file:{folder}", mode=mode, unaligned=unaligned)
    env = cw.Environment(parallelism=parallelism, checkpointing=by_hand)
    pipeline(env)
    with ExitStack() as stack:
        playbacks = {}
        for draft in env.drafts:
            if isinstance(draft.body, Source) and draft.uid in scripts:
                playback = playbacks[draft.uid] = Playback(scripts[draft.uid])
                stack.callback(playback.close)
                draft.body = ScriptedSource(draft.schema, playback)
        store = JobStore(FileStorage(str(folder)), "looked-at")
        yield LookedAt(Simulation(env.define("looked-at", parallelism), store, ManualClock(), choose), playbacks)
