"""The output of one attempt in the driver's hands: listed by checkpoints, committed, told to sinks; and collected rows.

    listed by a checkpoint -> its commit may begin -> every subtask has committed it -> its sink has heard so

Until the last step checkpoints carry it on, so that whoever restores one can take the steps that are left.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from cutwater.checkpoint.completed import CompletedCheckpoint
from cutwater.checkpoint.job_store import JobStore
from cutwater.connectors.sink import TwoPhaseCommitSink
from cutwater.flow.ids import CheckpointId
from cutwater.job.definition import JobDefinition
from cutwater.job.driver_io import DriverIO
from cutwater.job.output import UnconfirmedOutput, VisibleOutput
from cutwater.job.sink_notices import SinkNotices


class AttemptOutput:
    """``fail`` ends the attempt with a message."""

    def __init__(
        self,
        definition: JobDefinition,
        store: JobStore,
        io: DriverIO,
        *,
        log: Callable[[str], None],
        fail: Callable[[str], None],
    ) -> None:
        self._definition = definition
        self._store = store
        self._io = io
        self._log = log
        self._fail = fail
        self._unconfirmed = UnconfirmedOutput()
        self._notices = SinkNotices(definition.sinks, io, log)

    def opened(self, restored: Iterable[VisibleOutput]) -> None:
        """Every subtask has opened its sinks, and so has committed what the restored checkpoint lists."""
        self._notices.tell(restored)
        self._io.submit(self._remove_abandoned, self._log_failure)

    def listed_by(self, checkpoint: CompletedCheckpoint) -> CompletedCheckpoint:
        """The checkpoint as it is to be stored: with all that it has to carry."""
        checkpoint = replace(checkpoint, carried=self._unconfirmed.carried_past(checkpoint, self._notices.unheard()))
        self._unconfirmed.add(checkpoint)
        return checkpoint

    def begin_commit(self, checkpoint: CheckpointId, announce: Callable[[], None]) -> None:
        """Before sinks hear of it, it is written down that output up to here may be visible (rule 31)."""
        if not self._unconfirmed.is_listed_by(checkpoint):
            announce()
            return

        def noted(outcome: Any) -> None:
            if isinstance(outcome, Exception):
                self._fail(f"Checkpoint {checkpoint} is complete, but its commit could not begin: {outcome}")
            else:
                announce()

        self._io.submit(lambda: self._store.commit_began(checkpoint), noted)

    def confirm(self, checkpoint: CheckpointId) -> None:
        """Every subtask has committed everything up to ``checkpoint``."""
        self._notices.tell(self._unconfirmed.confirm(checkpoint))

    def settle(self, settled: Callable[[], None]) -> None:
        """Before the job ends. A sink that cannot be told fails the attempt: the next one restores the final checkpoint and
        tells it again."""
        self._notices.settle(lambda problem: settled() if problem is None else self._fail(problem))

    def end(self) -> None:
        """The attempt is over: one last try to tell what was not heard."""
        self._notices.try_again()

    def collect(self, uid: str, checkpoint: CheckpointId, writer: int, rows: bytes) -> None:
        def stored(outcome: Any) -> None:
            if isinstance(outcome, Exception):
                self._fail(f"Rows of collect ({uid}) could not be stored: {outcome}")

        if self._definition.checkpointing is None:
            self._io.submit(lambda: self._store.collected.append_whole(uid, writer, rows), stored)
        else:
            self._io.submit(lambda: self._store.collected.append(uid, checkpoint, writer, rows), stored)

    def _remove_abandoned(self) -> None:
        """Now no worker of an earlier incarnation lives, and what the restored checkpoint lists of its output is visible."""
        for incarnation in self._store.abandoned():
            for uid, sink in self._definition.sinks.items():
                if isinstance(sink, TwoPhaseCommitSink):
                    sink.abandon(uid, incarnation.id, [each.value for each in incarnation.listed if each.uid == uid])

    def _log_failure(self, outcome: Any) -> None:
        if isinstance(outcome, Exception):
            self._log(f"what an earlier run left staged could not be removed: {type(outcome).__name__}: {outcome}")
