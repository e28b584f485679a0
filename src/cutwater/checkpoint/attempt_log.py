"""The attempts of a job, as its storage knows them: which number is the highest, and what each one started from."""

import json
import os
import socket
from collections.abc import Callable
from typing import Any, TypeVar

from cutwater.checkpoint.attempts import AttemptRecord, decode_attempt, encode_attempt
from cutwater.checkpoint.layout import JobLayout
from cutwater.checkpoint.sequence import claim_next, clean_up, highest_number
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.errors import DamagedCheckpoint, StorageError
from cutwater.flow.ids import Attempt

Json = Any
T = TypeVar("T")


class AttemptLog:
    def __init__(self, storage: CheckpointStorage, layout: JobLayout) -> None:
        self.storage = storage
        self.layout = layout
        self._own: AttemptRecord | None = None
        self._last: Attempt | None = None

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
        self._require_own_traces()
        holder = {"host": socket.gethostname(), "pid": os.getpid()}
        content = json.dumps(holder).encode()
        attempt = Attempt(claim_next(self.storage, self.layout.attempts, self.layout.attempt, content))
        self._own = None
        return attempt

    def begin(self, record: AttemptRecord) -> None:
        self.storage.create(self.layout.attempt_start(record.attempt), encode_attempt(record))
        self._own, self._last = record, record.attempt
        clean_up(self.storage, self.layout.attempts, record.attempt)

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

    def _require_own_traces(self) -> None:
        """What this driver wrote must still be there: an empty folder in its place (a mount that is gone) looks like a job
        that never ran, and starting over would write all output again."""
        if self._last is not None and not any(self.storage.list(self.layout.attempt_start(self._last))):
            raise StorageError(
                f"The record of attempt {self._last} of job {self.layout.job!r}, which this driver wrote, is gone from "
                f"{self.storage.url}. Was the disk or network mount taken away? Nothing is started until it is back."
            )
