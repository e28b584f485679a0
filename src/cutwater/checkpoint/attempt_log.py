"""The attempts of a job, as its storage knows them: which number is the highest, and what each one started from."""

import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from cutwater.checkpoint.attempts import AttemptRecord, Base, decode_attempt, encode_attempt
from cutwater.checkpoint.holder import described, this_process
from cutwater.checkpoint.layout import JobLayout
from cutwater.checkpoint.sequence import claim_next, clean_up, highest_number
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.errors import DamagedCheckpoint, StorageError, TakenOver
from cutwater.flow.ids import Attempt

Json = Any
T = TypeVar("T")


class AttemptLog:
    def __init__(self, storage: CheckpointStorage, layout: JobLayout) -> None:
        self.storage = storage
        self.layout = layout
        self._own: AttemptRecord | None = None
        self._claimed: Attempt | None = None
        self._noted_completed = False
        # Numbers do not tell drivers apart: whoever starts in a folder that was deleted counts from 1 again.
        self._mark = this_process(driver=uuid.uuid4().hex)

    def current(self) -> AttemptRecord | None:
        """What the attempt of this driver started from; while it has none, the latest attempt of any driver."""
        if self._own is not None:
            return self._own
        starts = [name for name in self.storage.list(self.layout.attempts) if name.endswith(".start.json")]
        return self.read(starts[-1], decode_attempt) if starts else None

    def required(self) -> AttemptRecord:
        record = self.current()
        if record is None:
            raise StorageError(
                f"Job {self.layout.job!r} has no attempt in {self.storage.url} yet: acquire_attempt comes first."
            )
        return record

    def highest(self) -> int:
        """Whoever claimed it: every lower one is fenced."""
        return highest_number(self.storage, self.layout.attempts)

    def claim(self) -> Attempt:
        """The next number. From here on ``current`` is the attempt before, until ``begin``."""
        self.require_held()
        self._claimed = Attempt(claim_next(self.storage, self.layout.attempts, self.layout.attempt, self._mark))
        self._own, self._noted_completed = None, False
        return self._claimed

    def begin(self, record: AttemptRecord) -> None:
        name, content = self.layout.attempt_start(record.attempt), encode_attempt(record)
        created = self.storage.create(name, content)
        self.require_held()
        if not created:
            # The number is ours, so this was left by a driver that had it before the folder was deleted.
            self.storage.put(name, content)
        self._own = record
        clean_up(self.storage, self.layout.attempts, record.attempt)

    def has_taken_over(self, base: Base) -> None:
        """From here on this attempt, and those behind it, start from ``base``."""
        record = replace(self.required(), base=base)
        self.require_held()
        self.storage.put(self.layout.attempt_start(record.attempt), encode_attempt(record))
        self._own = record

    def note_completed(self) -> None:
        """This attempt has completed a checkpoint. Looked at only where all checkpoints are gone: once is enough, and what cannot
        be noted now is noted with the next one."""
        if self._own is None or self._noted_completed:
            return
        with suppress(StorageError, OSError):
            self.storage.create(self.layout.attempt_completed(self._own.attempt), b"{}")
            self._noted_completed = True

    def completed_any(self, record: AttemptRecord) -> bool:
        """Whether an attempt of the record's incarnation, up to that one, is known to have completed a checkpoint."""
        return record.completed_before or any(self.storage.list(self.layout.attempt_completed(record.attempt)))

    def read(self, name: str, decode: Callable[[bytes], T]) -> T:
        """A small file of the job's. Raises FileNotFoundError; DamagedCheckpoint if the file cannot be understood."""
        content = self.storage.read(name)
        try:
            return decode(content)
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedCheckpoint(
                f"{name} in {self.storage.url} is damaged ({len(content)} bytes): {error}. Bring it back from a copy, or give "
                f"the job another name and restore a checkpoint by its path."
            ) from error

    def require_held(self) -> None:
        """The job is still this driver's: its own mark is the highest. Nothing to hold before the first ``claim``.

        Called before whatever others build on, and again behind it where another driver may have come in between. Raises
        TakenOver: this driver has to end. StorageError: what it wrote is gone, as when a mount was taken away; an empty folder
        in its place looks like a job that never ran, and starting over there would write all output again.
        """
        if self._claimed is None:
            return
        newest = self.highest()
        try:
            mark = self.storage.read(self.layout.attempt(newest)) if newest >= self._claimed else None
        except FileNotFoundError:
            mark = None
        if mark is None:
            raise StorageError(
                f"The record of attempt {self._claimed} of job {self.layout.job!r}, which this driver wrote, is gone from "
                f"{self.storage.url}. Was the folder deleted, or the disk or network mount taken away? Nothing is published "
                f"or started until it is back."
            )
        if mark != self._mark:
            other = described(mark, "it does not say which")
            raise TakenOver(
                f"Attempt {newest} of another driver ({other}) took over job {self.layout.job!r} in "
                f"{self.storage.url}, where this one runs as attempt {self._claimed}. Was the folder deleted while the job ran? "
                f"This driver ends without publishing anything more: let the other one go on, or give one of them another "
                f"name or another storage=."
            )
