"""All that one job keeps in the checkpoint storage. I/O only: what to do with the facts is decided elsewhere.

Used by the driver, on one thread at a time; several drivers may race for the same job, and then attempts fence them.
"""

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from cutwater.checkpoint.attempt_log import AttemptLog
from cutwater.checkpoint.attempts import AttemptRecord, Base
from cutwater.checkpoint.checkpoint_folders import CheckpointFolders, Survey
from cutwater.checkpoint.claiming import give_up, take_over
from cutwater.checkpoint.collected_rows import CollectedRows
from cutwater.checkpoint.completed import CommittedOutput, CompletedCheckpoint
from cutwater.checkpoint.damage import Candidate, OnDamaged, RestoreOutcome, choose_after_damage
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_lock import JobLock, hold_job
from cutwater.checkpoint.layout import METADATA_FILE, JobLayout
from cutwater.checkpoint.publication import Publication, Published
from cutwater.checkpoint.reservations import Reservations
from cutwater.checkpoint.retention import choose_leftovers
from cutwater.checkpoint.sequence import claim_next, clean_up, highest_number
from cutwater.checkpoint.shared_files import SharedFiles
from cutwater.checkpoint.start import CommitBegun, ContinueReserved, Resume, RunEnd, StartFacts, StartFresh
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.checkpoint.storage_url import folder_of
from cutwater.checkpoint.verification import open_checkpoint, read_metadata, verify
from cutwater.errors import CutwaterError, DamagedCheckpoint, RestoreError
from cutwater.flow.ids import CheckpointId

Json = Any
T = TypeVar("T")

_ABANDONED_KEPT = 100


@dataclass(frozen=True, slots=True)
class AbandonedIncarnation:
    """An earlier incarnation of the job, which never goes on, and the output of its that checkpoints still list."""

    id: str
    listed: tuple[CommittedOutput, ...]


class Restored(NamedTuple):
    """What an attempt restores, and the storage that its file names are relative to. ``resumed``: the id under which new
    checkpoints may build on it, if its files are the job's own."""

    storage: CheckpointStorage
    checkpoint: CompletedCheckpoint
    resumed: CheckpointId | None


class JobStore:
    def __init__(self, storage: CheckpointStorage, job: str) -> None:
        self.storage = storage
        self.layout = JobLayout(job)
        self._attempts = AttemptLog(storage, self.layout)
        self._folders = CheckpointFolders(self._attempts)
        self._shared = SharedFiles(self._attempts, self._folders)
        self.collected = CollectedRows(self._attempts)
        self.reservations = Reservations(self._attempts)
        self._highest_seen: CheckpointId | None = None
        self._set_aside: set[CheckpointId] = set()
        self._gave_up_claimed = False

    # --- who runs -----------------------------------------------------------------------------------------------------

    def lock(self) -> JobLock:
        """Keep every other driver out for as long as this one lives; raises StorageInUse."""
        lock = hold_job(self.storage, self.layout.job, self.layout.lock)
        if isinstance(self.storage, FileStorage):
            self.storage.sweep(f"{self.layout.folder}/")
        return lock

    def record(self) -> AttemptRecord | None:
        """What the attempt of this store started from; of a store that only reads, the latest attempt of any driver."""
        return self._attempts.current()

    def acquire_attempt(self, start: StartFresh | Resume | ContinueReserved | None = None) -> AttemptRecord:
        """Fence every older attempt and write down what this one starts from; None goes on in the current incarnation.

        First the number is claimed, then the completed checkpoints are listed. An older attempt first publishes, then looks
        for a newer number. So a checkpoint is either in our list, or its publisher knows that it is void. After a
        StorageError it may be called again with the same ``start``.
        """
        attempt = self._attempts.claim()
        before = self.record()
        match start:
            case StartFresh(goes_on=goes_on):
                pass
            case Resume(new_incarnation=begins_anew):
                goes_on = not begins_anew
            case _:
                goes_on = True
        highest = self._highest_id()
        incarnation = before.incarnation if before is not None and goes_on else str(uuid.uuid4())
        abandoned = before.abandoned if before is not None else ()
        if before is not None and not goes_on:
            abandoned = (*abandoned, before.incarnation)[-_ABANDONED_KEPT:]
        match start:
            case Resume(path=str(path), committed=committed, claim=claim):
                base = Base(folder_of(path).removesuffix(f"/{METADATA_FILE}"), highest, committed, claim)
                record = AttemptRecord(attempt, incarnation, (), highest, base)
            case _ if before is not None and goes_on:
                survey = self.survey()
                accepted = sorted([each.id for each in survey.completed] + [each.id for each in survey.damaged])
                record = AttemptRecord(attempt, incarnation, tuple(accepted), highest, before.base)
            case _:
                record = AttemptRecord(attempt, incarnation, (), highest)
        completed_before = before is not None and goes_on and self._attempts.completed_any(before)
        record = replace(record, abandoned=abandoned, completed_before=completed_before or bool(record.accepted))
        self._attempts.begin(record)
        void = [each.id for each in self._folders.survey(record).void]
        kept = None if record.base is None or record.base.claimed else record.base.path
        self._set_aside.update(id for id in void if kept is None or not self._folders.stands_at(id, kept))
        return record

    @property
    def set_aside(self) -> frozenset[CheckpointId]:
        """Checkpoints of this incarnation that nobody restores by itself any more: the void ones that ``acquire_attempt``
        saw, except the base, and the damaged ones that ``find_restorable`` passed over."""
        return frozenset(self._set_aside)

    def note_workers(self, workers: Sequence[Json]) -> None:
        """Who works for this attempt, before any of them opens a sink: a later driver makes sure that they are dead."""
        record = self._attempts.required()
        self._attempts.require_held()
        content = {"attempt": record.attempt, "workers": list(workers)}
        self.storage.put(self.layout.workers, json.dumps(content).encode())

    def noted_workers(self, read: Callable[[Json], T]) -> list[T]:
        """Those of the last attempt that anybody noted, unless they were seen dead. ``read`` makes one of what was noted, and
        raises ValueError, KeyError or TypeError where it cannot."""
        try:
            content = self.storage.read(self.layout.workers)
        except FileNotFoundError:
            return []
        try:
            return [read(each) for each in json.loads(content)["workers"]]
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedCheckpoint(
                f"{self.layout.workers} in {self.storage.url} does not say which workers the last driver of job "
                f"{self.layout.job!r} had ({type(error).__name__}: {error}). Make sure that none of its Python workers still "
                f"runs, on any machine, then delete that file."
            ) from error

    def forget_workers(self) -> None:
        """They are known to be dead."""
        self._attempts.require_held()
        self.storage.delete([self.layout.workers])

    def reserve_id(self) -> CheckpointId:
        """The next id, durable before it is used: 1 + the highest ever reserved in this job's storage."""
        self._attempts.require_held()
        if self._highest_seen is None:
            self._highest_seen = self._highest_id()
        at_least = self._highest_seen + 1
        reserved = claim_next(self.storage, self.layout.ids, self.layout.id_marker, b"", at_least=at_least)
        self._highest_seen = CheckpointId(reserved)
        clean_up(self.storage, self.layout.ids, reserved)
        return CheckpointId(reserved)

    def mark_ended(self, end: RunEnd) -> None:
        """The last thing a run writes, when all output is committed. Counts until the next attempt."""
        record = self._attempts.required()
        self._attempts.require_held()
        content = json.dumps({"attempt": record.attempt, "end": end.value}).encode()
        self.storage.put(self.layout.ended(record.incarnation), content)

    def facts(
        self,
        restore: str,
        *,
        all_sinks_idempotent: bool,
        on_damaged: OnDamaged,
        at_most_once: bool = False,
        check_fit: Callable[[CompletedCheckpoint], object] = lambda _: None,
    ) -> StartFacts:
        """For ``choose_start``. A path is verified here and must pass ``check_fit``, which raises RestoreError: once it is
        started from, the job's own checkpoints are void."""
        record, survey = self.record(), self.survey()
        requested, problem = None, None
        if restore not in ("auto", "latest", "fresh"):
            try:
                place, found = open_checkpoint(restore)
                check_fit(found)
                verify(place, found)
                requested = found
            except CutwaterError as error:
                problem = f"restore={restore!r}: {error}"
        return StartFacts(
            job=self.layout.job,
            url=self.storage.url,
            incarnation=None if record is None else record.incarnation,
            lost_its_record=record is None and self._ran_before(),
            completed_any=record is not None and self._attempts.completed_any(record),
            completed=tuple(each.id for each in survey.completed),
            damaged=tuple(each.id for each in survey.damaged),
            base=None if record is None else record.base,
            end=None if record is None else self._end_of(record),
            commit=self.commit_begun()
            if record is not None or requested is None
            else self._commit_of(requested.incarnation),
            has_reservations=self.reservations.are_there(),
            ran_at_most_once=self.reservations.begun(),
            at_most_once=at_most_once,
            requested=requested,
            request_problem=problem,
            all_sinks_idempotent=all_sinks_idempotent,
            on_damaged=on_damaged,
        )

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def publish(self, checkpoint: CompletedCheckpoint, savepoint: CheckpointStorage | None = None) -> Publication:
        """See ``CheckpointFolders.publish``."""
        outcome = self._folders.publish(checkpoint, savepoint)
        if savepoint is None and isinstance(outcome, Published):
            self._attempts.note_completed()
        return outcome

    def completed(self) -> tuple[CompletedCheckpoint, ...]:
        """Ascending. To choose one to restore use ``find_restorable``: a damaged one is not listed here."""
        return self.survey().completed

    def survey(self) -> Survey:
        record = self.record()
        return Survey() if record is None else self._folders.survey(record)

    def find_restorable(self, *, all_sinks_idempotent: bool, on_damaged: OnDamaged) -> RestoreOutcome:
        """Verify from the newest backwards until one is intact, then decide. Reads every file of those it looks at."""
        survey, commit, record = self.survey(), self.commit_begun(), self.record()
        waiting = [Candidate(each.id) for each in survey.completed]
        if commit is not None and commit.path is not None:
            waiting.append(Candidate(commit.checkpoint, path=commit.path))
        base = None if record is None else record.base
        if base is not None and base.taken is not None:
            waiting.append(Candidate(base.after, path=base.path, taken=base.taken))
        if base is not None:
            waiting.append(Candidate(base.after, path=base.path))
        seen = list(survey.damaged)
        for candidate in sorted(waiting, key=lambda each: each.id, reverse=True):
            try:
                verify(*self.open(candidate))
            except (DamagedCheckpoint, RestoreError) as error:
                seen.append(replace(candidate, problem=str(error)))
            else:
                seen.append(candidate)
                break
        self._set_aside.update(each.id for each in seen if each.problem is not None and each.path is None)
        committed = None if commit is None else commit.checkpoint
        return choose_after_damage(
            seen,
            committed,
            completed_before=record is not None and record.completed_before,
            all_sinks_idempotent=all_sinks_idempotent,
            on_damaged=on_damaged,
        )

    def open(self, candidate: Candidate) -> tuple[CheckpointStorage, CompletedCheckpoint]:
        """What ``find_restorable`` chose, and the storage that its file names are relative to."""
        if candidate.taken is not None:
            try:
                return self.storage, self._shared.taken_over(candidate.taken)
            except FileNotFoundError:
                raise RestoreError(f"what the job took over of it is gone from {self.storage.url}.") from None
        if candidate.path is not None:
            return open_checkpoint(candidate.path)
        return self.storage, read_metadata(self.storage, self.layout.checkpoint_folder(candidate.id))

    def begin_restore(self, candidate: Candidate) -> Restored:
        """``open`` for an attempt that restores it: its sinks commit what it lists, so first that is written down (rule 31).

        Of another incarnation it needs no note: nothing is older than a base, and its id says nothing here. If the user claimed
        it, its files become the job's own, and only then the base of this attempt and the next ones: a crash anywhere before
        leaves the base as it was.
        """
        storage, checkpoint = self.open(candidate)
        record = self._attempts.required()
        base = record.base
        known_here = checkpoint.incarnation == record.incarnation and checkpoint.id <= candidate.id
        if known_here and checkpoint.has_committables():
            self.commit_began(checkpoint.id)
        if candidate.path is None:
            return Restored(storage, checkpoint, candidate.id)
        if candidate.taken is not None:
            return Restored(storage, checkpoint, candidate.taken)
        if base is None or not base.claimed or base.path != candidate.path:
            return Restored(storage, checkpoint, None)
        id = self.reserve_id()
        taken = take_over(self.storage, self.layout, id, storage, checkpoint)
        self._attempts.has_taken_over(replace(base, taken=id))
        self._gave_up_claimed = False
        return Restored(self.storage, taken, id)

    def abandoned(self) -> tuple[AbandonedIncarnation, ...]:
        """With what somebody may still make visible by restoring a checkpoint by its path. None at all while there is a
        checkpoint that cannot be read: nobody knows what it lists."""
        record = self._attempts.required()
        if not record.abandoned:
            return ()
        try:
            listed = [output for id in self._folders.with_metadata() for output in self._folders.metadata(id).output()]
        except (FileNotFoundError, DamagedCheckpoint, RestoreError):
            return ()
        return tuple(AbandonedIncarnation(each, tuple(listed)) for each in record.abandoned)

    def delete_checkpoints(
        self, checkpoints: Sequence[CheckpointId], *, oldest_base: CheckpointId | None = None
    ) -> None:
        """Aborted or subsumed ones, in the order given. The caller has made sure that none of them is a savepoint or of
        unknown fate. ``oldest_base``: the oldest checkpoint that a new one may build on, if any may. Raises TakenOver: another
        driver in this folder may use the same ids."""
        self._attempts.require_held()
        completed = self._shared.retire(checkpoints)
        self._folders.delete(checkpoints)
        self._set_aside.difference_update(checkpoints)
        record = self.record() if completed and not self._gave_up_claimed else None
        base = None if record is None else record.base
        if base is not None and base.taken is not None:
            self._shared.retire_taken_over(base.taken)
        self._shared.delete_unneeded(oldest_base)
        if base is not None and base.claimed:
            self._gave_up_claimed = True
            give_up(base.path, self.storage, self.layout)

    def delete_leftovers(self) -> tuple[CheckpointId, ...]:
        """Files of checkpoints that older attempts began and never completed. After ``acquire_attempt``."""
        if isinstance(self.storage, FileStorage):
            self.storage.sweep(self.layout.checkpoints)
        highest = self._attempts.required().highest_id
        leftovers = choose_leftovers(self._folders.on_disk(), self._folders.with_metadata(), highest)
        self._folders.delete(leftovers)
        self._shared.delete_leftovers(highest)
        return leftovers

    # --- commits ------------------------------------------------------------------------------------------------------

    def commit_began(self, checkpoint: CheckpointId, savepoint_path: str | None = None) -> None:
        """Before sinks hear of a checkpoint with committables: from here on its output may be visible."""
        value = {"incarnation": self._attempts.required().incarnation, "path": savepoint_path}
        self._attempts.require_held()
        self.storage.create(self.layout.commit(checkpoint), json.dumps(value).encode())
        self._attempts.require_held()
        clean_up(self.storage, self.layout.commits, checkpoint)

    def commit_begun(self) -> CommitBegun | None:
        """The highest checkpoint whose output may be visible, except what the user chose to repeat by going back."""
        record = self.record()
        if record is None:
            return None
        noted = self._commit_of(record.incarnation)
        if record.base is None or (noted is not None and noted.checkpoint > record.base.after):
            return noted
        return None if record.base.committed is None else CommitBegun(record.base.committed)

    def _commit_of(self, incarnation: str) -> CommitBegun | None:
        """The last that was noted, if it is one of ``incarnation``."""
        highest = CheckpointId(highest_number(self.storage, self.layout.commits))
        value = self._attempts.read(self.layout.commit(highest), json.loads) if highest else None
        return None if value is None or value["incarnation"] != incarnation else CommitBegun(highest, value["path"])

    def visible_up_to(self, restored: CompletedCheckpoint | None = None) -> CheckpointId:
        """The last checkpoint whose output may be visible, for sinks to compare with what is: what the user chose to repeat counts
        too. ``restored``: what the attempt restores, which says so itself should the notes of commits be gone."""
        noted = CheckpointId(highest_number(self.storage, self.layout.commits))
        if restored is None or restored.incarnation != self._attempts.required().incarnation:
            return noted
        return max(noted, restored.id)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _end_of(self, record: AttemptRecord) -> RunEnd | None:
        try:
            value = self._attempts.read(self.layout.ended(record.incarnation), json.loads)
        except FileNotFoundError:
            return None
        return RunEnd(value["end"]) if value["attempt"] == record.attempt else None

    def _ran_before(self) -> bool:
        """Whatever its attempts wrote down: ids and commits come behind that."""
        return self._highest_id() > 0 or any(self.storage.list(self.layout.commits))

    def _highest_id(self) -> CheckpointId:
        """Folders count too, in case somebody cleared the markers away."""
        folders = max(self._folders.on_disk(), default=0)
        return CheckpointId(max(folders, highest_number(self.storage, self.layout.ids)))
