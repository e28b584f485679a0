"""What became of a state table in a checkpoint: the files that hold it, and how they are to be read together."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

Json = Any


class Form(StrEnum):
    """How the files of a table make up its content."""

    ROWS = "rows"
    """One file with all rows."""
    CHANGES = "changes"
    """A file with all rows, then files of what changed, in the order in which it did (``state/changes.py``)."""
    ROCKSDB = "rocksdb"
    """Together they are a RocksDB database, each under its own ``name``; several states of an operator may be in one."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a file of rows, and the first and last key group in it. An empty range says: it has none."""

    offset: int
    size: int
    checksum: str
    first_key_group: int
    last_key_group: int


@dataclass(frozen=True, slots=True)
class StoredFile:
    """``file`` is its name in the storage. A ``shared`` one may be referenced by later checkpoints of the job."""

    file: str
    size: int
    checksum: str
    shared: bool = False
    name: str = ""
    """What it is called among the files that it is used with, where that matters."""
    sections: tuple[Section, ...] = ()
    """Together they are the file. The first begins with the schema, which everybody needs; of the others a subtask reads those
    that may hold rows of its key groups. Without any the file is read as a whole."""


@dataclass(frozen=True, slots=True)
class StoredTable:
    """One state of one operator in one subtask. An empty range of key groups says: it has none.

    ``rows`` is 0 only if it surely has none; rows that later files replace count too. ``details``: whatever else, as JSON,
    is needed to read the files.
    """

    state: str
    files: tuple[StoredFile, ...]
    rows: int
    first_key_group: int
    last_key_group: int
    form: Form = Form.ROWS
    details: Json = None

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def is_shared(self) -> bool:
        """Whether a later checkpoint may reference all of its files."""
        return all(file.shared for file in self.files)


def stored_table_from_json(value: Json) -> StoredTable:
    files = tuple(map(_file_from_json, value["files"]))
    return StoredTable(**{**value, "files": files, "form": Form(value["form"])})


def _file_from_json(value: Json) -> StoredFile:
    """Those of earlier versions have no sections."""
    return StoredFile(**{**value, "sections": tuple(Section(**each) for each in value.get("sections", ()))})


class StoredState(Protocol):
    """The files of one operator's state, for a store that goes on with them as they are."""

    @property
    def stored(self) -> Sequence[StoredTable]: ...

    def fetch(self, file: StoredFile, path: str) -> None:
        """Bring a file to ``path``, which is on the local disk. Raises DamagedCheckpoint if it is not what was written."""
