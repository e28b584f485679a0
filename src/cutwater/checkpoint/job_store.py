"""All that one job keeps in the checkpoint storage. I/O only: what to do with the facts is decided elsewhere.

Used by the driver, on one thread at a time; several drivers may race for the same job, and then attempts fence them.
"""

import json
import os
import socket
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from cutwater.checkpoint.attempts import AttemptRecord, Base, decode_attempt, encode_attempt
from cutwater.checkpoint.completed import CommittedOutput, CompletedCheckpoint, encode_metadata
from cutwater.checkpoint.damage import Candidate, OnDamaged, RestoreOutcome, choose_after_damage
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_lock import JobLock, hold_job
from cutwater.checkpoint.layout import METADATA_FILE, JobLayout, metadata_file
from cutwater.checkpoint.publication import CertainlyNotStored, Publication, Published, UnknownWhetherStored
from cutwater.checkpoint.reservations import latest_positions
from cutwater.checkpoint.retention import choose_leftovers
from cutwater.checkpoint.sequence import claim_next, clean_up, highest_number
from cutwater.checkpoint.start import CommitBegun, ContinueReserved, Resume, RunEnd, StartFacts, StartFresh
from cutwater.checkpoint.statistics import CheckpointKind
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.checkpoint.storage_url import folder_of
from cutwater.checkpoint.verification import open_checkpoint, read_metadata, verify
from cutwater.errors import CutwaterError, DamagedCheckpoint, RestoreError, StorageError, UncertainWrite
from cutwater.flow.ids import Attempt, CheckpointId

Json = Any
T = TypeVar("T")

_ABANDONED_KEPT = 100


@dataclass(frozen=True, slots=True)
class Survey:
    """The checkpoints of the current incarnation that count, ascending; those whose metadata cannot be read; and those that
    do not count any more."""

    completed: tuple[CompletedCheckpoint, ...]
    damaged: tuple[Candidate, ...]
    void: tuple[CompletedCheckpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class AbandonedIncarnation:
    """An earlier incarnation of the job, which never goes on, and the output of its that checkpoints still list."""

    id: str
    listed: tuple[CommittedOutput, ...]


class JobStore:
    def __init__(self, storage: CheckpointStorage, job: str) -> None:
        self.storage = storage
        self.layout = JobLayout(job)
        self._own_record: AttemptRecord | None = None
        self._last_attempt: Attempt | None = None
        self._highest_seen: CheckpointId | None = None
        self._read: dict[CheckpointId, CompletedCheckpoint] = {}
        self._set_aside: set[CheckpointId] = set()

    # --- who runs -----------------------------------------------------------------------------------------------------

    def lock(self) -> JobLock:
        """Keep every other driver out for as long as this one lives; raises StorageInUse."""
        lock = hold_job(self.storage, self.layout.job, self.layout.lock)
        if isinstance(self.storage, FileStorage):
            self.storage.sweep(f"{self.layout.folder}/")
        return lock

    def record(self) -> AttemptRecord | None:
        """What the attempt of this store started from; of a store that only reads, the latest attempt of any driver."""
        if self._own_record is not None:
            return self._own_record
        starts = [name for name in self.storage.list(self.layout.attempts) if name.endswith(".start.json")]
        return self._decoded(starts[-1], decode_attempt) if starts else None

    def acquire_attempt(self, start: StartFresh | Resume | ContinueReserved | None = None) -> AttemptRecord:
        """Fence every older attempt and write down what this one starts from; None goes on in the current incarnation.

        First the number is claimed, then the completed checkpoints are listed. An older attempt first publishes, then looks
        for a newer number. So a checkpoint is either in our list, or its publisher knows that it is void. After a
        StorageError it may be called again with the same ``start``.
        """
        self._require_own_traces()
        holder = {"host": socket.gethostname(), "pid": os.getpid()}
        attempt = Attempt(
            claim_next(self.storage, self.layout.attempts, self.layout.attempt, json.dumps(holder).encode())
        )
        self._own_record = None
        before = self.record()
        goes_on = not (isinstance(start, StartFresh) or (isinstance(start, Resume) and start.new_incarnation))
        highest = self._highest_id()
        incarnation = before.incarnation if before is not None and goes_on else str(uuid.uuid4())
        abandoned = before.abandoned if before is not None else ()
        if before is not None and not goes_on:
            abandoned = (*abandoned, before.incarnation)[-_ABANDONED_KEPT:]
        match start:
            case Resume(path=str(path), committed=committed):
                record = AttemptRecord(attempt, incarnation, (), highest, Base(folder_of(path), highest, committed))
            case _ if before is not None and goes_on:
                survey = self.survey()
                accepted = sorted([each.id for each in survey.completed] + [each.id for each in survey.damaged])
                record = AttemptRecord(attempt, incarnation, tuple(accepted), highest, before.base)
            case _:
                record = AttemptRecord(attempt, incarnation, (), highest)
        record = replace(record, abandoned=abandoned)
        self.storage.create(self.layout.attempt_start(attempt), encode_attempt(record))
        self._own_record, self._last_attempt = record, attempt
        self._set_aside.update(each.id for each in self.survey().void if not self._is_base(each.id, record.base))
        clean_up(self.storage, self.layout.attempts, attempt)
        return record

    @property
    def set_aside(self) -> frozenset[CheckpointId]:
        """Checkpoints of this incarnation that nobody restores by itself any more: the void ones that ``acquire_attempt``
        saw, except the base, and the damaged ones that ``find_restorable`` passed over."""
        return frozenset(self._set_aside)

    def note_workers(self, workers: Sequence[Json]) -> None:
        """Who works for this attempt, before any of them opens a sink: a later driver makes sure that they are dead."""
        record = self._required_record()
        content = {"attempt": record.attempt, "workers": list(workers)}
        self.storage.put(self.layout.workers, json.dumps(content).encode())

    def noted_workers(self) -> list[Json]:
        """Those of the last attempt that anybody noted, unless they were seen dead."""
        try:
            return list(json.loads(self.storage.read(self.layout.workers))["workers"])
        except FileNotFoundError:
            return []

    def forget_workers(self) -> None:
        """They are known to be dead."""
        self.storage.delete([self.layout.workers])

    def reserve_id(self) -> CheckpointId:
        """The next id, durable before it is used: 1 + the highest ever reserved in this job's storage."""
        if self._highest_seen is None:
            self._highest_seen = self._highest_id()
        at_least = self._highest_seen + 1
        reserved = claim_next(self.storage, self.layout.ids, self.layout.id_marker, b"", at_least=at_least)
        self._highest_seen = CheckpointId(reserved)
        clean_up(self.storage, self.layout.ids, reserved)
        return CheckpointId(reserved)

    def mark_ended(self, end: RunEnd) -> None:
        """The last thing a run writes, when all output is committed. Counts until the next attempt."""
        record = self._required_record()
        content = json.dumps({"attempt": record.attempt, "end": end.value}).encode()
        self.storage.put(self.layout.ended(record.incarnation), content)

    def facts(
        self,
        restore: str,
        *,
        all_sinks_idempotent: bool,
        on_damaged: OnDamaged,
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
            completed=tuple(each.id for each in survey.completed),
            damaged=tuple(each.id for each in survey.damaged),
            base=None if record is None else record.base,
            end=None if record is None else self._end_of(record),
            commit=self.commit_begun(),
            has_reservations=record is not None
            and any(self.storage.list(self.layout.reservations(record.incarnation))),
            requested=requested,
            request_problem=problem,
            all_sinks_idempotent=all_sinks_idempotent,
            on_damaged=on_damaged,
        )

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def publish(self, checkpoint: CompletedCheckpoint, savepoint: CheckpointStorage | None = None) -> Publication:
        """Make the checkpoint complete by one exclusive create; ``savepoint`` is a savepoint's own storage.

        All files must be durable already. Repeating it with the same checkpoint is harmless.
        """
        storage = savepoint or self.storage
        name, content = metadata_file(checkpoint.folder), encode_metadata(checkpoint)
        path = f"{storage.url}/{checkpoint.folder}" if checkpoint.folder else storage.url
        try:
            created = storage.create(name, content)
        except UncertainWrite as error:
            return UnknownWhetherStored(str(error))
        except StorageError as error:
            return CertainlyNotStored(str(error))
        try:
            if not created and storage.read(name) != content:
                return UnknownWhetherStored(
                    f"{name} in {storage.url} exists already with another content; it is left alone."
                )
            newest = highest_number(self.storage, self.layout.attempts)
        except (StorageError, OSError) as error:
            return UnknownWhetherStored(f"{name} in {storage.url} was written, then the storage failed: {error}")
        if newest > checkpoint.attempt:
            return UnknownWhetherStored(
                f"attempt {newest} took over job {self.layout.job!r}: checkpoint {checkpoint.id} of attempt {checkpoint.attempt} "
                f"counts only if the new attempt had already seen it."
            )
        return Published(path)

    def completed(self) -> tuple[CompletedCheckpoint, ...]:
        """Ascending. To choose one to restore use ``find_restorable``: a damaged one is not listed here."""
        return self.survey().completed

    def survey(self) -> Survey:
        record = self.record()
        completed: list[CompletedCheckpoint] = []
        void: list[CompletedCheckpoint] = []
        damaged: list[Candidate] = []
        for checkpoint in self._with_metadata() if record is not None else ():
            assert record is not None
            try:
                found = self._metadata_of(checkpoint)
            except FileNotFoundError:
                continue
            except DamagedCheckpoint as error:
                if record.may_be_ours(checkpoint):
                    damaged.append(Candidate(checkpoint, str(error)))
                continue
            if found.incarnation == record.incarnation and found.kind is not CheckpointKind.SAVEPOINT:
                counts = record.counts(found.id, found.attempt, found.incarnation)
                (completed if counts else void).append(found)
        return Survey(tuple(completed), tuple(damaged), tuple(void))

    def find_restorable(self, *, all_sinks_idempotent: bool, on_damaged: OnDamaged) -> RestoreOutcome:
        """Verify from the newest backwards until one is intact, then decide. Reads every file of those it looks at."""
        survey, commit, record = self.survey(), self.commit_begun(), self.record()
        waiting = [Candidate(each.id) for each in survey.completed]
        if commit is not None and commit.path is not None:
            waiting.append(Candidate(commit.checkpoint, path=commit.path))
        if record is not None and record.base is not None:
            waiting.append(Candidate(record.base.after, path=record.base.path))
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
        return choose_after_damage(seen, committed, all_sinks_idempotent=all_sinks_idempotent, on_damaged=on_damaged)

    def open(self, candidate: Candidate) -> tuple[CheckpointStorage, CompletedCheckpoint]:
        """What ``find_restorable`` chose, and the storage that its file names are relative to."""
        if candidate.path is not None:
            return open_checkpoint(candidate.path)
        return self.storage, read_metadata(self.storage, self.layout.checkpoint_folder(candidate.id))

    def begin_restore(self, candidate: Candidate) -> tuple[CheckpointStorage, CompletedCheckpoint]:
        """``open`` for an attempt that restores it: its sinks commit what it lists, so first that is written down (rule 31).

        What stands elsewhere needs no note: a savepoint that stopped the job has one, and nothing is older than a base.
        """
        storage, checkpoint = self.open(candidate)
        if candidate.path is None and checkpoint.has_committables():
            self.commit_began(candidate.id)
        return storage, checkpoint

    def abandoned(self) -> tuple[AbandonedIncarnation, ...]:
        """With what somebody may still make visible by restoring a checkpoint by its path. None at all while there is a
        checkpoint that cannot be read: nobody knows what it lists."""
        record = self._required_record()
        if not record.abandoned:
            return ()
        try:
            listed = [output for id in self._with_metadata() for output in self._metadata_of(id).output()]
        except (FileNotFoundError, DamagedCheckpoint, RestoreError):
            return ()
        return tuple(AbandonedIncarnation(each, tuple(listed)) for each in record.abandoned)

    def delete_checkpoints(self, checkpoints: Sequence[CheckpointId]) -> None:
        """Aborted or subsumed ones, in the order given; each becomes invisible before it becomes incomplete. Repeatable.

        The caller has made sure that none of them is a savepoint or of unknown fate.
        """
        for checkpoint in checkpoints:
            self._read.pop(checkpoint, None)
            self.storage.delete([self.layout.metadata(checkpoint)])
            self.storage.delete(list(self.storage.list(f"{self.layout.checkpoint_folder(checkpoint)}/")))

    def delete_leftovers(self) -> tuple[CheckpointId, ...]:
        """Files of checkpoints that older attempts began and never completed. After ``acquire_attempt``."""
        record = self._required_record()
        names = self.storage.list(self.layout.checkpoints)
        on_disk = {id for name in names if (id := self.layout.checkpoint_of(name)) is not None}
        leftovers = choose_leftovers(on_disk, self._with_metadata(), record.highest_id)
        self.delete_checkpoints(leftovers)
        return leftovers

    # --- commits ------------------------------------------------------------------------------------------------------

    def commit_began(self, checkpoint: CheckpointId, savepoint_path: str | None = None) -> None:
        """Before sinks hear of a checkpoint with committables: from here on its output may be visible."""
        value = {"incarnation": self._required_record().incarnation, "path": savepoint_path}
        self.storage.create(self.layout.commit(checkpoint), json.dumps(value).encode())
        clean_up(self.storage, self.layout.commits, checkpoint)

    def commit_begun(self) -> CommitBegun | None:
        """The highest checkpoint whose output may be visible, except what the user chose to repeat by going back."""
        highest = CheckpointId(highest_number(self.storage, self.layout.commits))
        record = self.record()
        if record is None:
            return None
        before = record.base.committed if record.base is not None else None
        if highest > (record.base.after if record.base is not None else 0):
            value = self._decoded(self.layout.commit(highest), json.loads)
            if value["incarnation"] == record.incarnation:
                return CommitBegun(highest, value["path"])
        return None if before is None else CommitBegun(before)

    # --- output and positions that the driver keeps -------------------------------------------------------------------

    def append_collected(self, uid: str, checkpoint: CheckpointId, index: int, rows: bytes) -> None:
        """Rows of ``collect`` that ``checkpoint`` committed. Idempotent: ``checkpoint`` and ``index`` are those of the subtask
        that wrote the rows, also when another one commits them again after a rescale."""
        incarnation = self._required_record().incarnation
        self._append_once(self.layout.collected_part(incarnation, uid, checkpoint, index), uid, checkpoint, index, rows)

    def append_collected_whole(self, uid: str, index: int, rows: bytes) -> None:
        """All rows of a subtask that runs without checkpoints. They count for this attempt alone: the next begins anew, and
        its rows come in another order or go to another subtask."""
        record = self._required_record()
        name = self.layout.collected_whole(record.incarnation, uid, record.attempt, index)
        self._append_once(name, uid, CheckpointId(0), index, rows)

    def _append_once(self, name: str, uid: str, checkpoint: CheckpointId, index: int, rows: bytes) -> None:
        if not self.storage.create(name, rows) and self.storage.read(name) != rows:
            raise StorageError(
                f"Rows of {uid!r}, subtask {index}, checkpoint {checkpoint} are stored already, and they are not the same rows: "
                f"nothing was overwritten. Two subtasks committed under one name."
            )

    def collected(self, uid: str) -> list[bytes]:
        """Ordered by (checkpoint, subtask)."""
        record = self.record()
        if record is None:
            return []
        folder = self.layout.collected(record.incarnation, uid)
        own = self.layout.collected_by(record.incarnation, uid, record.attempt)
        names = (
            name for name in self.storage.list(folder) if not name.startswith(f"{folder}a") or name.startswith(own)
        )
        return [self.storage.read(name) for name in names]

    def store_reservation(self, uid: str, index: int, number: int, positions: Sequence[Json]) -> None:
        """At most once: durable before the rows behind ``positions`` ([{"split", "position"}]) are emitted.

        Each call replaces the subtask's last one, so ``positions`` names every split that the subtask reads."""
        record = self._required_record()
        content = json.dumps({"uid": uid, "attempt": record.attempt, "number": number, "positions": list(positions)})
        name = self.layout.reservation(record.incarnation, uid, index, record.attempt)
        self.storage.put(name, content.encode())

    def reservations(self) -> dict[str, list[Json]]:
        """Per uid the latest reserved position of every split, as [{"split", "position"}]."""
        record = self.record()
        names = self.storage.list(self.layout.reservations(record.incarnation)) if record is not None else ()
        return latest_positions([self._decoded(name, json.loads) for name in names])

    # --- inside -------------------------------------------------------------------------------------------------------

    def _require_own_traces(self) -> None:
        """What this driver wrote must still be there: an empty folder in its place (a mount that is gone) looks like a job
        that never ran, and starting over would write all output again."""
        last = self._last_attempt
        if last is not None and not any(self.storage.list(self.layout.attempt_start(last))):
            raise StorageError(
                f"The record of attempt {last} of job {self.layout.job!r}, which this driver wrote, is gone from "
                f"{self.storage.url}. Was the disk or network mount taken away? Nothing is started until it is back."
            )

    def _is_base(self, checkpoint: CheckpointId, base: Base | None) -> bool:
        """Whether it stands where the user said to restore from."""
        place = self.storage.local_path(self.layout.checkpoint_folder(checkpoint))
        if base is None or place is None:
            return False
        return os.path.realpath(base.path.removesuffix(f"/{METADATA_FILE}")) == os.path.realpath(place)

    def _required_record(self) -> AttemptRecord:
        record = self.record()
        if record is None:
            raise StorageError(
                f"Job {self.layout.job!r} has no attempt in {self.storage.url} yet: acquire_attempt comes first."
            )
        return record

    def _decoded(self, name: str, decode: Callable[[bytes], T]) -> T:
        """Raises FileNotFoundError; DamagedCheckpoint if the file cannot be understood."""
        content = self.storage.read(name)
        try:
            return decode(content)
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedCheckpoint(
                f"{name} in {self.storage.url} is damaged ({len(content)} bytes): {error}. Bring it back from a copy, or give "
                f"the job another name and restore a checkpoint by its path."
            ) from error

    def _end_of(self, record: AttemptRecord) -> RunEnd | None:
        try:
            value = self._decoded(self.layout.ended(record.incarnation), json.loads)
        except FileNotFoundError:
            return None
        return RunEnd(value["end"]) if value["attempt"] == record.attempt else None

    def _with_metadata(self) -> list[CheckpointId]:
        names = self.storage.list(self.layout.checkpoints)
        ids = (self.layout.checkpoint_of(name) for name in names if name.endswith(f"/{METADATA_FILE}"))
        return sorted(id for id in ids if id is not None)

    def _metadata_of(self, checkpoint: CheckpointId) -> CompletedCheckpoint:
        """Read once. Raises FileNotFoundError, DamagedCheckpoint, RestoreError."""
        if checkpoint not in self._read:
            self._read[checkpoint] = read_metadata(self.storage, self.layout.checkpoint_folder(checkpoint))
        return self._read[checkpoint]

    def _highest_id(self) -> CheckpointId:
        """Folders count too, in case somebody cleared the markers away."""
        names = self.storage.list(self.layout.checkpoints)
        folders = max((self.layout.checkpoint_of(name) or 0 for name in names), default=0)
        return CheckpointId(max(folders, highest_number(self.storage, self.layout.ids)))
