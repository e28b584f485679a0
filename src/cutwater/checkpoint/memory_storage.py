"""Checkpoints in the driver's memory: for trying things out, and for jobs that may start over when the driver dies."""

import io
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, NoReturn


class MemoryStorage:
    """Lives and dies with the driver. Workers never touch it: their state travels inside the acknowledgement.

    ``max_state`` bounds, in bytes, each state of each subtask; a larger one makes its subtask decline the checkpoint.
    """

    def __init__(self, max_state: int = 5 << 20) -> None:
        self.max_state = max_state
        self._lock = threading.Lock()
        self._files: dict[str, bytes] = {}
        self._held: set[str] = set()

    @property
    def url(self) -> str:
        return "memory"

    def create(self, name: str, content: bytes) -> bool:
        with self._lock:
            if name in self._files:
                return False
            self._files[name] = bytes(content)
            return True

    def put(self, name: str, content: bytes) -> None:
        with self._lock:
            self._files[name] = bytes(content)

    @contextmanager
    def open_write(self, name: str) -> Iterator[IO[bytes]]:
        file = io.BytesIO()
        yield file
        self.put(name, file.getvalue())

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        content = self._content(name)
        return content[offset:] if length is None else content[offset : offset + length]

    def size(self, name: str) -> int:
        return len(self._content(name))

    def list(self, prefix: str = "") -> Iterator[str]:
        with self._lock:
            return iter(sorted(name for name in self._files if name.startswith(prefix)))

    def delete(self, names: Sequence[str]) -> None:
        with self._lock:
            for name in names:
                self._files.pop(name, None)

    def local_path(self, name: str) -> str | None:
        return None

    def hold(self, name: str) -> bool:
        """The in-process stand-in for a file lock: True for whoever asks first, until ``let_go``."""
        with self._lock:
            if name in self._held:
                return False
            self._held.add(name)
            return True

    def let_go(self, name: str) -> None:
        with self._lock:
            self._held.discard(name)

    def __reduce__(self) -> NoReturn:
        raise TypeError("storage='memory' lives in the driver and cannot be sent to a worker")

    def _content(self, name: str) -> bytes:
        with self._lock:
            try:
                return self._files[name]
            except KeyError:
                raise FileNotFoundError(name) from None
