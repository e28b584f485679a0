"""Which files a path means: one file, a folder with everything below it, or a glob."""

import glob
import math
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from cutwater.connectors.flag import checked_flag
from cutwater.errors import ConfigError, DataError

SPLIT_BYTES = 64 << 20
SMALLEST_SPLIT_BYTES = 4 << 20
LONGEST_NAME_BYTES = 255
LONGEST_PATH_BYTES = 4095
"""What Linux takes."""
COMPRESSED = (".gz", ".bz2", ".zst", ".xz", ".snappy", ".lz4")


@dataclass(frozen=True, slots=True)
class FoundFile:
    path: str
    size: int


class InputFiles:
    """Names that begin with ``.`` or ``_`` are passed over, below a folder too; but folders like ``_day=1`` are data.

    A watched file must appear complete: write it under such a name (or elsewhere on the same file system), then rename
    it. A file counts by its path: it is read once, as long as it was when it was found.
    """

    def __init__(self, path: str | os.PathLike[str], where: str, *, watch: bool) -> None:
        self.where = where
        self.watch = checked_flag(where, "watch", watch)
        self.path = local_path(path, where)
        self._is_glob = glob.has_magic(self.path) and not os.path.exists(self.path)
        if not self._is_glob:
            refuse_too_long(self.path, where)
        if watch:
            return
        if self._is_glob and not self.found():
            raise ConfigError(f"{where}: no file matches {self.path}; correct the pattern, or pass watch=True to wait")
        if not self._is_glob and not os.path.exists(self.path):
            raise ConfigError(
                f"{where}: {self.path} does not exist; correct the path, or pass watch=True to wait for it"
            )

    def found(self, known: Collection[str] = ()) -> list[FoundFile]:
        """The files there are, by name, without those known. DataError, naming it, if one may be missed in some folder."""
        try:
            paths = sorted(set(self._paths()).difference(known))
            return [file for path in paths if (file := _found(path)) is not None]
        except OSError as error:
            raise DataError(
                f"{self.where}: {error.filename} cannot be read: {error.strerror}; put it there and let the user who runs "
                "the driver list and enter it, or give a path without it"
            ) from error

    def _paths(self) -> list[str]:
        if os.path.isfile(self.path):
            return [self.path]
        if not self._is_glob:
            return _below(self.path, may_be_missing=self.watch)
        _refuse_unlistable(self.path)
        return [path for root in glob.glob(self.path, recursive=True) for path in _matched(root)]


def split_width(found: Iterable[FoundFile], parallelism: int) -> int:
    """How many bytes a split should have, so that every subtask gets its share of what was found at the start."""
    share = math.ceil(sum(file.size for file in found) / parallelism) if parallelism > 1 else SPLIT_BYTES
    return min(SPLIT_BYTES, max(SMALLEST_SPLIT_BYTES, share))


def local_path(path: object, where: str, *, needed: str = "a file, a folder or a glob") -> str:
    """An absolute path: workers may have another working folder. ``file:`` URLs are understood."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ConfigError(f"{where}: path={path!r}; {needed} is needed")
    text = os.fspath(path)
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "file":
        text = "/" + rest.lstrip("/") if rest.startswith("/") else rest
        if not text:
            raise ConfigError(f"{where}: path={path!r} names nothing behind file:; {needed} is needed")
    elif colon and rest.startswith("//"):
        raise ConfigError(f"{where}: {text}: only local and mounted paths can be used, not {scheme}://")
    if "\0" in text or not _is_encodable(text):
        raise ConfigError(f"{where}: path={path!r} holds a character that no path can; {needed} is needed")
    return os.path.abspath(os.path.expanduser(text))


def refuse_too_long(path: str, where: str) -> None:
    """``path``, or a folder on the way to it: it can be neither looked for nor created."""
    whole = os.fsencode(path)
    longest = max(whole.split(b"/"), key=len)
    for what, length, limit in (
        (f"the name {os.fsdecode(longest[:20])}...", len(longest), LONGEST_NAME_BYTES),
        ("it", len(whole), LONGEST_PATH_BYTES),
    ):
        if length > limit:
            raise ConfigError(
                f"{where}: path={path[:60]!r}...: {what} has {length} bytes; at most {limit} are possible"
            )


def refuse_compressed(path: str, where: str) -> None:
    if path.endswith(COMPRESSED):
        raise DataError(f"{where}: {path} is compressed, so it has no positions to resume from; unpack it first")


def _is_encodable(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _matched(root: str) -> list[str]:
    """The files that a path found by a glob means: itself, or everything below it."""
    name = os.path.basename(root.rstrip("/"))
    if os.path.isfile(root):
        return [] if _is_hidden(name) else [root]
    return _below(root, may_be_missing=True) if os.path.isdir(root) and not _is_hidden_folder(name) else []


def _below(root: str, *, may_be_missing: bool) -> list[str]:
    def refuse(error: OSError) -> None:
        gone = isinstance(error, FileNotFoundError)
        if not gone or (error.filename == root and not may_be_missing):
            raise error

    found = []
    for folder, subfolders, names in os.walk(root, onerror=refuse, followlinks=True):
        subfolders[:] = [name for name in subfolders if not _is_hidden_folder(name) and not _leads_back(folder, name)]
        found += [os.path.join(folder, name) for name in names if not _is_hidden(name)]
    return found


def _refuse_unlistable(pattern: str) -> None:
    """``glob`` passes over what it may not list or enter; whoever reads everything wants to know."""
    folders = []
    while glob.has_magic(pattern):
        pattern, name = os.path.split(pattern)
        folders.append((pattern, name))
    for folder, name in reversed(folders):
        for there in glob.glob(os.path.join(folder, ""), recursive=True) if glob.has_magic(folder) else [folder]:
            try:
                os.stat(os.path.join(there, "."))
                if glob.has_magic(name):
                    os.scandir(there).close()
            except (FileNotFoundError, NotADirectoryError):
                continue


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _is_hidden_folder(name: str) -> bool:
    """One like ``_day=1`` holds the rows of a partition, as in Spark."""
    return _is_hidden(name) and not (name.startswith("_") and "=" in name)


def _leads_back(folder: str, name: str) -> bool:
    """Whether it is a link to a folder that it stands in: following it would never end."""
    path = os.path.join(folder, name)
    if not os.path.islink(path):
        return False
    here, there = os.path.realpath(folder), os.path.realpath(path)
    return os.path.commonpath([here, there]) == there


def _found(path: str) -> FoundFile | None:
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    return FoundFile(path, status.st_size)
