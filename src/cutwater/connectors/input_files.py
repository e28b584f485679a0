"""Which files a path means: one file, a folder with everything below it, or a glob."""

import glob
import math
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from cutwater.errors import ConfigError, DataError

SPLIT_BYTES = 64 << 20
SMALLEST_SPLIT_BYTES = 4 << 20
COMPRESSED = (".gz", ".bz2", ".zst", ".xz", ".snappy", ".lz4")


@dataclass(frozen=True, slots=True)
class FoundFile:
    path: str
    size: int


class InputFiles:
    """Names that begin with ``.`` or ``_`` are passed over, below a folder too.

    A watched file must appear complete: write it under such a name (or elsewhere on the same file system), then rename
    it. A file counts by its path: it is read once, as long as it was when it was found.
    """

    def __init__(self, path: str | os.PathLike[str], where: str, *, watch: bool) -> None:
        self.where = where
        self.watch = watch
        self.path = local_path(path, where)
        self._is_glob = glob.has_magic(self.path) and not os.path.exists(self.path)
        if watch:
            return
        if self._is_glob and not self.found():
            raise ConfigError(f"{where}: no file matches {self.path}; correct the pattern, or pass watch=True to wait")
        if not self._is_glob and not os.path.exists(self.path):
            raise ConfigError(
                f"{where}: {self.path} does not exist; correct the path, or pass watch=True to wait for it"
            )

    def found(self, known: Collection[str] = ()) -> list[FoundFile]:
        """The files there are, by name, without those known."""
        paths = sorted(set(self._paths()).difference(known))
        return [file for path in paths if (file := _found(path)) is not None]

    def _paths(self) -> list[str]:
        if os.path.isfile(self.path):
            return [self.path]
        roots = glob.glob(self.path, recursive=True) if self._is_glob else [self.path]
        return [path for root in roots if not _is_hidden(root) for path in _below(root)]


def split_width(found: Iterable[FoundFile], parallelism: int) -> int:
    """How many bytes a split should have, so that every subtask gets its share of what was found at the start."""
    share = math.ceil(sum(file.size for file in found) / parallelism) if parallelism > 1 else SPLIT_BYTES
    return min(SPLIT_BYTES, max(SMALLEST_SPLIT_BYTES, share))


def local_path(path: object, where: str) -> str:
    """An absolute path: workers may have another working folder. ``file:`` URLs are understood."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ConfigError(f"{where}: path={path!r}; a file, a folder or a glob is needed")
    text = os.fspath(path)
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "file":
        text = "/" + rest.lstrip("/") if rest.startswith("/") else rest
    elif colon and rest.startswith("//"):
        raise ConfigError(f"{where}: {text}: only local and mounted paths can be used, not {scheme}://")
    return os.path.abspath(os.path.expanduser(text))


def refuse_compressed(path: str, where: str) -> None:
    if path.endswith(COMPRESSED):
        raise DataError(f"{where}: {path} is compressed, so it has no positions to resume from; unpack it first")


def _below(root: str) -> list[str]:
    if os.path.isfile(root):
        return [root]
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if not _is_hidden(name)]
        found += [os.path.join(folder, name) for name in names if not _is_hidden(name)]
    return found


def _is_hidden(path: str) -> bool:
    return os.path.basename(path).startswith((".", "_"))


def _found(path: str) -> FoundFile | None:
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    return FoundFile(path, status.st_size)
