"""From what the user wrote as ``storage=`` to the storage itself."""

import os
import re

from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.errors import ConfigError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
_NOT_YET = frozenset(("hdfs", "webhdfs", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "wasb", "wasbs"))
_ALLOWED = "Allowed: storage='file:<folder>' (a folder that driver and workers share) or storage='memory'."


def open_storage(url: object) -> CheckpointStorage:
    """The storage for a URL; one that is open already is returned as it is. Touches nothing yet. Raises ConfigError."""
    match url:
        case FileStorage() | MemoryStorage():
            return url
        case "memory" | "memory:":
            return MemoryStorage()
        case str():
            return _open_folder(url)
        case os.PathLike():
            return FileStorage(os.path.abspath(os.fsdecode(url)))
        case _:
            raise ConfigError(f"storage={url!r} is not a storage. {_ALLOWED}")


def _open_folder(url: str) -> FileStorage:
    found = _SCHEME.fullmatch(url)
    if found is None:
        raise ConfigError(f"storage={url!r} has no scheme. Did you mean storage='file:{url}'? {_ALLOWED}")
    scheme, rest = found[1].lower(), found[2]
    if scheme in _NOT_YET:
        raise ConfigError(f"storage={url!r}: {scheme}:// is not supported yet. {_ALLOWED}")
    if scheme != "file":
        raise ConfigError(f"storage={url!r}: unknown scheme {scheme!r}. {_ALLOWED}")
    return FileStorage(folder_of(url if rest else ""))


def folder_of(location: str) -> str:
    """The absolute folder that ``file:relative``, ``file:/absolute``, ``file:///absolute`` or a plain path means."""
    rest = location[5:] if location[:5].lower() == "file:" else location
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise ConfigError(
                f"{location!r} names the host {host!r}. Write file:/{path} for a path, or file:{host}/{path}."
            )
        rest = slash + path
    if not rest:
        raise ConfigError(f"{location or 'file:'!r} names no folder. {_ALLOWED}")
    if "\0" in rest:
        raise ConfigError(f"{location!r} holds a NUL character, which no path can. {_ALLOWED}")
    return os.path.abspath(os.path.expanduser(rest))
