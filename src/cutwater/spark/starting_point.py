"""Where a run starts, and what the subtasks of each of its attempts start from."""

import os
import tempfile
from dataclasses import replace

from cutwater.checkpoint.damage import FallBack, NothingToRestore, RefuseRestore, RestoreLatest
from cutwater.checkpoint.job_store import JobStore, Restored
from cutwater.checkpoint.start import ContinueReserved, RefuseStart, Resume, StartFresh, choose_start
from cutwater.config import CheckpointMode
from cutwater.connectors.spark_table import SparkTable
from cutwater.errors import ConfigError, JobFailed, RestoreError
from cutwater.flow.ids import CheckpointId
from cutwater.job.definition import JobDefinition
from cutwater.job.deployment import (
    Deployment,
    check_fit,
    check_reserved,
    deploy_fresh,
    deploy_reserved,
    deploy_restored,
)
from cutwater.job.handle import JobState
from cutwater.job.moved_records import MovedRecords
from cutwater.state.local_folder import folder_of_this_user


class StartingPoint:
    """Reads the job's storage; the caller holds the job's lock."""

    def __init__(
        self,
        definition: JobDefinition,
        store: JobStore,
        state: JobState,
        moved: MovedRecords,
        *,
        allow_non_restored_state: bool,
    ) -> None:
        self._definition = definition
        self._store = store
        self._state = state
        self._moved = moved
        self._allow_non_restored_state = allow_non_restored_state

    def choose(self, restore: str, *, claim: bool = False) -> StartFresh | Resume | ContinueReserved:
        checkpointing = self._definition.checkpointing
        if restore not in ("auto", "latest", "fresh") and (checkpointing is None or self._reserves):
            runs = "without checkpoints" if checkpointing is None else "in mode='at_most_once'"
            raise ConfigError(
                f"restore={restore!r}: a job that runs {runs} restores no state. Give its environment checkpointing= in "
                f"mode='exactly_once' or 'at_least_once', or leave restore= out."
            )
        on_damaged = "fail" if checkpointing is None else checkpointing.on_damaged.value
        facts = self._store.facts(
            restore,
            all_sinks_idempotent=self._definition.all_sinks_idempotent,
            on_damaged=on_damaged,  # type: ignore[arg-type]  # the enum's values are the literals
            at_most_once=self._reserves,
            check_fit=lambda found: check_fit(
                self._definition, found, allow_non_restored_state=self._allow_non_restored_state
            ),
        )
        start = choose_start(restore, facts)
        if isinstance(start, RefuseStart):
            raise RestoreError(start.reason)
        if isinstance(start, StartFresh) and restore != "fresh" and facts.incarnation is not None:
            self._state.log.append(f"starting over: {start.reason}")
        if isinstance(start, Resume):
            if start.path is None:
                self._refuse_unfit(start.checkpoint)
            elif claim:
                start = replace(start, claim=True)
            if start.warning:
                self._state.log.append(start.warning)
        if self._reserves and not isinstance(start, StartFresh) and not self._allow_non_restored_state:
            check_reserved(self._definition, self._store.reservations.latest())
        return start

    @property
    def _reserves(self) -> bool:
        """Whether positions are reserved, and gone on behind, instead of state being restored."""
        checkpointing = self._definition.checkpointing
        return checkpointing is not None and checkpointing.mode is CheckpointMode.AT_MOST_ONCE

    def _refuse_unfit(self, checkpoint: CheckpointId) -> None:
        """At the call, where the user sees it, if the job's own folder has the checkpoint; else when it is deployed."""
        for found in self._store.completed():
            if found.id == checkpoint:
                check_fit(self._definition, found, allow_non_restored_state=self._allow_non_restored_state)

    def deploy(self, start: StartFresh | Resume | ContinueReserved | None, incarnation: str) -> Deployment:
        """What this attempt's subtasks start from. The path that a user restored is the only one of its attempt to find."""
        self._materialise_tables(incarnation)
        restored = None if self._reserves else self._begin_restore(start)
        if self._reserves:
            deployment = self._deploy_reserved(start)
        elif restored is None:
            self._moved.start_over()
            deployment = deploy_fresh(self._definition)
        else:
            deployment = self._deploy_restored(restored)
        deployment.visible_up_to = self._store.visible_up_to(None if restored is None else restored.checkpoint)
        for note in deployment.notes:
            self._state.log.append(note)
        return deployment

    def _begin_restore(self, start: StartFresh | Resume | ContinueReserved | None) -> Restored | None:
        """None: the attempt begins without state."""
        checkpointing = self._definition.checkpointing
        if isinstance(start, StartFresh) or checkpointing is None:
            return None
        found = self._store.find_restorable(
            all_sinks_idempotent=self._definition.all_sinks_idempotent,
            on_damaged=checkpointing.on_damaged.value,
        )
        match found:
            case NothingToRestore():
                if self._state.status == "restarting":  # and not for the first time, after it waited for slots
                    self._state.log.append("starting over: no checkpoint was completed yet")
                return None
            case RefuseRestore(report):
                raise JobFailed(report)
            case FallBack(to, warning):
                self._state.log.append(warning)
            case RestoreLatest(to):
                pass
        return self._store.begin_restore(to)

    def _deploy_restored(self, restored: Restored) -> Deployment:
        checkpoint = restored.checkpoint
        self._moved.go_back_to(checkpoint.id)
        self._state.detail = f"from checkpoint {checkpoint.id}"
        self._state.log.append(f"restoring checkpoint {checkpoint.id}")
        return deploy_restored(
            self._definition,
            restored.storage,
            checkpoint,
            allow_non_restored_state=self._allow_non_restored_state,
            resumed=restored.resumed,
        )

    def _deploy_reserved(self, start: StartFresh | Resume | ContinueReserved | None) -> Deployment:
        deployment = deploy_reserved(
            self._definition, self._store.reservations, allow_non_restored_state=self._allow_non_restored_state
        )
        if isinstance(start, StartFresh):
            self._moved.start_over()
        else:
            self._moved.go_on_behind(self._state.progress)
        return deployment

    def _materialise_tables(self, incarnation: str) -> None:
        """A DataFrame is computed once per incarnation: recomputed on restart it might differ (rule 49)."""
        for uid, source in self._definition.sources.items():
            if isinstance(source, SparkTable):
                source.materialise(self._table_folder(incarnation, uid))

    def _table_folder(self, incarnation: str, uid: str) -> str:
        name = self._store.layout.table(incarnation, uid)
        path = self._store.storage.local_path(name)
        if path is None:
            path = os.path.join(folder_of_this_user(tempfile.gettempdir(), "cutwater-tables"), name)
        return path
