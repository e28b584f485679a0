"""A pipeline that is taken through its input by hand, so that one can look at what its checkpoints hold."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import cutwater as cw
from cutwater.checkpoint.completed import CompletedCheckpoint
from cutwater.checkpoint.events import ManualTriggerRequested, RequestId
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.statistics import CheckpointInfo
from cutwater.checkpoint.stored_tables import RestoredTables
from cutwater.connectors.source import Source
from cutwater.flow.ids import SubtaskId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.testing.clock import ManualClock
from cutwater.testing.script import Mark, Playback, ScriptedSource
from cutwater.testing.simulation import Action, Choose, Simulation, first


class LookedAt:
    def __init__(self, simulation: Simulation, playbacks: Mapping[str, Playback]) -> None:
        self.simulation = simulation
        self._playbacks = playbacks
        self._requests = 0

    def pass_all_marks(self) -> None:
        """Marks then only part one batch from the next."""
        for playback in self._playbacks.values():
            playback.passed = {at for at, item in enumerate(playback.items) if isinstance(item, Mark)}

    def pass_mark(self, uid: str) -> None:
        """The source reads on, up to its next mark."""
        playback = self._playbacks[uid]
        assert playback.mark is not None, f"{uid} does not wait at a mark"
        playback.pass_mark()
        self.wait_for(uid)

    def wait_for(self, vertex: str) -> None:
        """Time passes until the loop of ``vertex`` rests no more."""
        while not any(each.kind == "loop" and _name(each) == vertex for each in self.simulation.actions()):
            assert self.simulation.advance_to_next_timer(), f"nothing wakes {vertex}"

    def let(self, *who: str) -> None:
        """These act until none of them can, and nobody else does: ``"join"`` is what its loop, its snapshots and its messages
        do, ``"join<-0"`` its reader taking rows of the first partition that sends to it, ``"driver"`` the driver's own."""
        while action := next((each for each in self.simulation.actions() if _name(each) in who), None):
            self.simulation.perform(action)

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

    def in_flight(self) -> dict[str, list[tuple[Any, ...]]]:
        """The records that the latest checkpoint holds of each edge, as it found them on their way."""
        records: dict[str, list[tuple[Any, ...]]] = {}
        for record in self.latest.subtasks:
            rows = record.snapshot.in_flight
            if rows is None:
                continue
            setup = self.simulation.subtasks[SubtaskId(record.snapshot.vertex, record.snapshot.index)]._setup
            groups = KeyGroupRange(0, self.latest.max_parallelism - 1)
            table = RestoredTables([], (rows.table,), groups, storage=self.simulation.store.storage)
            for batch in table.batches(rows.table.state):
                for edge, payload in zip(batch["edge"].to_pylist(), batch["payload"], strict=True):
                    schema = setup.input_schemas[sorted(setup.input_edges)[edge]]
                    stored = pa.ipc.read_record_batch(payload.as_buffer(), schema)
                    name = str(rows.edges[edge].name)
                    records.setdefault(name, []).extend(tuple(row.values()) for row in stored.to_pylist())
        return records

    def records_in(self, vertex: str) -> int:
        """Processed by this attempt."""
        return self.simulation.subtasks[SubtaskId(vertex, 0)].records_in

    def collected(self, uid: str) -> list[tuple[Any, ...]]:
        """What has been committed by now."""
        rows: list[tuple[Any, ...]] = []
        for part in self.simulation.store.collected.read(uid):
            with pa.ipc.open_stream(pa.py_buffer(part)) as reader:
                rows += [tuple(row.values()) for row in reader.read_all().to_pylist()]
        return rows

    def positions(self, uid: str) -> list[Any]:
        return [
            operator.inline
            for record in self.latest.subtasks
            for operator in record.snapshot.operators
            if operator.uid == uid
        ]


def _name(action: Action) -> str:
    """Of whom a step is, where every vertex has one subtask."""
    return action.actor.replace("[0]", "")


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
