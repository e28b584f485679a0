"""One living driver per job and storage."""

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from cutwater.checkpoint.file_storage import FileStorage, advice_on
from cutwater.checkpoint.holder import described, this_process
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.errors import StorageError, StorageInUse


class JobLock:
    """Held until ``release`` or the end of the process, however it ends."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        if self._release is not None:
            self._release()
            self._release = None

    def __enter__(self) -> "JobLock":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def hold_job(storage: CheckpointStorage, job: str, name: str) -> JobLock:
    """Take the lock ``name``, or raise StorageInUse naming who has it."""
    match storage:
        case FileStorage():
            return _hold_file(storage, job, name)
        case MemoryStorage():
            if not storage.hold(name):
                raise StorageInUse(
                    f"Job {job!r} already runs in this process on this memory storage: stop it or wait for it."
                )
            return JobLock(lambda: storage.let_go(name))
        case _:
            raise StorageError(f"{storage.url} knows no lock, so a second driver of job {job!r} could not be kept out.")


def _hold_file(storage: FileStorage, job: str, name: str) -> JobLock:
    path = os.path.join(storage.root, name)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise StorageError(f"{path} cannot be opened: {error.strerror}. {advice_on(error)}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        content = os.pread(descriptor, 4096, 0)
        os.close(descriptor)
        raise StorageInUse(
            f"Job {job!r} in {storage.url} is run by another driver: {described(content, 'its pid is not known yet')}. "
            f"Stop that one, or give this job another name or another storage=."
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise StorageError(
            f"{path} cannot be locked: {error.strerror}. Use a file system that supports flock."
        ) from error
    # The lock is held whether or not its holder's name fits on the disk; the first record of the attempt will tell.
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, this_process(since=int(time.time())), 0)
    # The file itself stays: removing it would let a second driver lock a new file of the same name.
    return JobLock(lambda: os.close(descriptor))
