"""Folders on the worker's disk that live as long as their owner, and are removed by the next one if it died."""

import fcntl
import os
import shutil
import uuid
import weakref
from contextlib import suppress
from pathlib import Path

from cutwater.errors import StorageError

_LOCK = ".lock"


def folder_of_this_user(directory: str, name: str) -> str:
    """For what all processes of this user share below ``directory``: in a folder that one user made, another cannot write."""
    return os.path.join(directory, f"{name}-{os.geteuid()}")


_owned: set[str] = set()
"""The paths of those of this process. One thread copies it while others open and close folders: a set of texts is copied at once, a
``WeakSet`` is not."""


class LocalFolder:
    """A new empty folder below ``parent``. Its lock file stands beside it, made and locked before it: what is not locked has
    no owner any more, however that one ended, and is swept when the next folder is made."""

    def __init__(self, parent: str) -> None:
        self.path = os.path.join(parent, uuid.uuid4().hex)
        try:
            Path(parent).mkdir(parents=True, exist_ok=True)
            sweep(parent)
            self._close = weakref.finalize(self, _remove, self.path, _locked(self.path + _LOCK))
            os.mkdir(self.path, 0o700)
            _owned.add(self.path)
        except OSError as error:
            raise StorageError(
                f"{parent}: no folder can be made here for local state: {error.strerror}. Name others with "
                f"RocksDB(local_directories=[...]), or set TMPDIR for Spark's executors."
            ) from error

    def close(self) -> None:
        """Remove it; also done when the owner is forgotten, and at the end of the process."""
        self._close()


_REMOVAL = f'for path; do rm -rf -- "$path" && rm -f -- "$path{_LOCK}"; done'


def remove_behind_this_process() -> None:
    """By another one, which takes the time that it takes: for who ends at once and may be killed meanwhile. What this one still
    writes is left to the next sweep."""
    paths = list(_owned)
    if paths:
        with suppress(OSError):  # what is left is swept by the next owner of a folder
            nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
            os.posix_spawn("/bin/sh", ["/bin/sh", "-c", _REMOVAL, "sh", *paths], {}, file_actions=nothing, setsid=True)


def sweep(parent: str) -> None:
    """Remove what dead owners left."""
    for lock in Path(parent).glob(f"*{_LOCK}"):
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, PermissionError):
            continue  # gone, or somebody else's
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        _remove(str(lock).removesuffix(_LOCK), descriptor)


def _locked(path: str) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # A sweep may have come between the two lines above: then this is a file without a name.
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)


def _remove(path: str, descriptor: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if not os.path.exists(path):  # else the next owner of a folder tries again
        Path(path + _LOCK).unlink(missing_ok=True)
    _owned.discard(path)
    os.close(descriptor)
