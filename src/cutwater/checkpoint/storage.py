"""Where checkpoints are kept: one small protocol, so that a system is supported by five verbs.

Names are relative, ``/``-separated, without ``..``. What ``put`` or ``create`` returned from is durable: it survives the
machine's crash, not only the process's. A reader never sees a half-written file.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import IO, Protocol


class CheckpointStorage(Protocol):
    @property
    def url(self) -> str: ...

    def create(self, name: str, content: bytes) -> bool:
        """Create exclusively: exactly one of all racing callers gets True, everybody else False; never overwrites."""

    def put(self, name: str, content: bytes) -> None:
        """Write or replace, atomically."""

    def open_write(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """Stream a large new file; it appears under ``name``, durable, when the context ends without an error."""

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        """Raises FileNotFoundError."""

    def size(self, name: str) -> int:
        """Raises FileNotFoundError."""

    def list(self, prefix: str = "") -> Iterator[str]:
        """Every name that starts with ``prefix``, sorted."""

    def delete(self, names: Sequence[str]) -> None:
        """Missing ones are no error."""

    def local_path(self, name: str) -> str | None:
        """A file-system path for memory-mapping, where there is one."""
