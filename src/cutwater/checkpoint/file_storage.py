"""Checkpoints in a folder of a local or shared POSIX file system."""

import contextlib
import errno
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from cutwater.errors import StorageError, UncertainWrite

_STAGED = ".tmp-"
"""Files under construction. No name of the storage begins so, and ``list`` never shows them."""
_WRITE_BUFFER = 1 << 16
"""For small pieces. Tables come by the megabyte, and go to the file without another copy."""

_CERTAINLY_REFUSED = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EPERM, errno.EACCES, errno.EROFS, errno.EMLINK, errno.ENOENT, errno.EXDEV,
     errno.ENOTSUP, errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR)
)  # fmt: skip
"""A link or rename that fails so has changed nothing. After others, such as EIO, nobody knows."""


@dataclass(frozen=True, slots=True)
class FileStorage:
    """A file is written under a staged name, synced, then linked or renamed, then its folder is synced, and those that got a new
    folder for it.

    So a crash at any point leaves a name either absent or complete. Used by the driver and, pickled, by the workers, which
    see the same folder. ``root`` is absolute.
    """

    root: str

    @property
    def url(self) -> str:
        return f"file:{self.root}"

    def create(self, name: str, content: bytes) -> bool:
        path = self._path(name)
        staged, made_in = _stage(path, content)
        try:
            created = _link(staged, path)
        finally:
            _forget(staged)
        # Also for the loser of a race: what it is told exists must still exist after the machine's crash, though the winner was
        # killed before it synced the folders that it had made.
        _sync_entry(path, made_in if created else self._above(path))
        return created

    def put(self, name: str, content: bytes) -> None:
        path = self._path(name)
        staged, made_in = _stage(path, content)
        _move(staged, path, made_in)

    @contextmanager
    def open_write(self, name: str) -> Iterator[IO[bytes]]:
        path = self._path(name)
        staged, descriptor, made_in = _open_staged(path)
        try:
            with open(descriptor, "wb", buffering=_WRITE_BUFFER) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            _forget(staged)
            raise _not_stored(path, error) from error
        except BaseException:
            _forget(staged)
            raise
        _move(staged, path, made_in)

    def link(self, existing: str, name: str) -> bool:
        """Give a file that is already durable elsewhere a second name; False: it is on another file system, or none that
        knows links."""
        path = self._path(name)
        try:
            made_in = _make_folder(os.path.dirname(path))
            os.link(existing, path)
        except OSError as error:
            if error.errno in (errno.EXDEV, errno.ENOTSUP, errno.EPERM, errno.EMLINK):
                return False
            raise _not_stored(path, error) from error
        _sync_entry(path, made_in)
        return True

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        path = self._path(name)
        try:
            with open(path, "rb") as file:
                file.seek(offset)
                return file.read() if length is None else file.read(length)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StorageError(f"{path} cannot be read: {error.strerror or error}. {advice_on(error)}") from error

    def size(self, name: str) -> int:
        return os.stat(self._path(name)).st_size

    def list(self, prefix: str = "") -> Iterator[str]:
        folder = os.path.join(self.root, os.path.dirname(prefix))
        found: list[str] = []
        for parent, folders, files in os.walk(folder, onerror=_refuse_unless_missing):
            relative = os.path.relpath(parent, self.root)
            before = "" if relative == "." else f"{relative}/"
            folders[:] = [
                each for each in folders if f"{before}{each}/".startswith(prefix[: len(before) + len(each) + 1])
            ]
            names = (before + file for file in files if not file.startswith(_STAGED))
            found.extend(name for name in names if name.startswith(prefix))
        return iter(sorted(found))

    def delete(self, names: Sequence[str]) -> None:
        """Durable when it returns, so that deleting in two calls keeps their order in a crash of the machine."""
        paths = [self._path(name) for name in names]
        try:
            for path in paths:
                with suppress(FileNotFoundError):
                    os.unlink(path)
            for folder in sorted({os.path.dirname(path) for path in paths}, reverse=True):
                self._sync_or_remove(folder)
        except OSError as error:
            raise StorageError(
                f"{error.filename or paths[0]} cannot be deleted: {error.strerror}. {advice_on(error)}"
            ) from error

    def local_path(self, name: str) -> str | None:
        return self._path(name)

    def sweep(self, prefix: str) -> None:
        """Remove what crashed writers left under construction. Only for the one who owns ``prefix``: a writer that still
        lives fails with StorageError."""
        for parent, _, files in os.walk(os.path.join(self.root, os.path.dirname(prefix)), topdown=False):
            left = [file for file in files if file.startswith(_STAGED)]
            for file in left:
                _forget(os.path.join(parent, file))
            if left and parent != self.root:
                with contextlib.suppress(OSError):  # unless something else is in it
                    os.rmdir(parent)

    def _path(self, name: str) -> str:
        parts = name.split("/")
        if any(part in ("", ".", "..") or part.startswith(_STAGED) or "\0" in part for part in parts):
            raise StorageError(
                f"{name!r} is not a name in a storage: use relative names without '..', separated by '/'."
            )
        return os.path.join(self.root, *parts)

    def _above(self, path: str) -> Iterator[str]:
        """The folders above that of ``path``, up to the root."""
        folder = os.path.dirname(path)
        while folder != self.root:
            folder = os.path.dirname(folder)
            yield folder

    def _sync_or_remove(self, folder: str) -> None:
        """Remove folders that became empty (not the root); sync the deepest one that stays."""
        while folder != self.root:
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                pass
            except OSError:
                break
            folder = os.path.dirname(folder)
        with suppress(FileNotFoundError):
            _sync_folder(folder)


def _stage(path: str, content: bytes) -> tuple[str, list[str]]:
    """Write ``content``, durable, under a staged name beside ``path``. Beside that name comes what ``_make_folder`` says."""
    staged, descriptor, made_in = _open_staged(path)
    try:
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        _forget(staged)
        raise _not_stored(path, error) from error
    except BaseException:
        _forget(staged)
        raise
    return staged, made_in


def _open_staged(path: str) -> tuple[str, int, list[str]]:
    folder = os.path.dirname(path)
    staged = os.path.join(folder, _STAGED + uuid.uuid4().hex)
    made_in: list[str] = []
    try:
        while True:
            # A concurrent delete may remove the folder while it is still empty: make it again.
            with suppress(FileNotFoundError):
                made_in += _make_folder(folder)
                return staged, os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), made_in
    except OSError as error:
        raise _not_stored(path, error) from error


def _make_folder(folder: str) -> list[str]:
    """The folders that got a new one, to be synced when the file is in it: sooner, the disk would be waited for once more."""
    missing: list[str] = []
    while not os.path.isdir(folder):
        # Another process may have made it between the two looks.
        if os.path.lexists(folder) and not os.path.isdir(folder):
            raise NotADirectoryError(errno.ENOTDIR, f"{folder} is not a folder")
        missing.append(folder)
        folder = os.path.dirname(folder)
    for each in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(each)
    return [os.path.dirname(each) for each in missing]


def _link(staged: str, path: str) -> bool:
    try:
        os.link(staged, path)
    except FileExistsError:
        # NFS repeats a request whose answer was lost, and then refuses our own success: the link count tells.
        return os.stat(staged).st_nlink > 1
    except OSError as error:
        if error.errno in _CERTAINLY_REFUSED:
            raise _not_stored(path, error) from error
        raise _uncertain(path, error) from error
    return True


def _move(staged: str, path: str, made_in: Sequence[str]) -> None:
    try:
        os.rename(staged, path)
    except OSError as error:
        _forget(staged)
        if error.errno in _CERTAINLY_REFUSED:
            raise _not_stored(path, error) from error
        raise _uncertain(path, error) from error
    _sync_entry(path, made_in)


def _sync_entry(path: str, above: Iterable[str]) -> None:
    try:
        for folder in (os.path.dirname(path), *above):
            _sync_folder(folder)
    except OSError as error:
        raise _uncertain(path, error) from error


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _forget(staged: str) -> None:
    with suppress(OSError):
        os.unlink(staged)


def _refuse_unless_missing(error: OSError) -> None:
    """A folder that cannot be listed is not an empty one: checkpoints in it would be taken for gone."""
    if not isinstance(error, FileNotFoundError):
        raise StorageError(f"{error.filename} cannot be listed: {error.strerror}. {advice_on(error)}") from error


def _not_stored(path: str, error: OSError) -> StorageError:
    return StorageError(f"{path} was not stored: {error.strerror or error}. {advice_on(error)}")


def _uncertain(path: str, error: OSError) -> UncertainWrite:
    return UncertainWrite(
        f"{path} may or may not be stored: {error.strerror or error}. Nothing it refers to is deleted. {advice_on(error)}"
    )


def advice_on(error: OSError) -> str:
    """What the user can do about it."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return "The disk is full: free space there, lower retain=, or point storage= to another disk."
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return "Let the user of driver and workers write there (the file system must allow hard links), or change storage=."
        case errno.ENOTDIR | errno.EISDIR:
            return "Something else stands in the way there: move it, or change storage=."
        case _:
            return "Check that the disk or the network mount is healthy."
