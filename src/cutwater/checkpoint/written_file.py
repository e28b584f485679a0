"""A new file of a checkpoint while it is written: its size and checksum are known when it is closed."""

import io
from typing import IO, Any

from cutwater.checkpoint.checksum import new_checksum
from cutwater.state.frozen import too_large
from cutwater.state.stored import Section, StoredFile


class WrittenFile(io.RawIOBase):
    """To be written to, as pyarrow wants it. Raises StorageError as soon as it grows over ``limit`` bytes.

    Whoever opened ``file`` flushes it: pyarrow would do so once more when it lets go of one that could not be written, and tell
    the user's terminal of the failure.
    """

    def __init__(
        self, name: str, file: IO[bytes], state: str, *, limit: int | None = None, shared: bool = False, local: str = ""
    ) -> None:
        super().__init__()
        self._name = name
        self._file = file
        self._state = state
        self._limit = limit
        self._shared = shared
        self._local = local
        self._digest = new_checksum()
        self._size = 0
        self._section_begin = 0
        self._section_digest: Any = None

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        view = memoryview(content)
        self._size += view.nbytes
        if self._limit is not None and self._size > self._limit:
            raise too_large(self._state, self._limit)
        self._digest.update(view)
        if self._section_digest is not None:
            self._section_digest.update(view)
        self._file.write(view)
        return view.nbytes

    def tell(self) -> int:
        return self._size

    def end_section(self) -> tuple[int, int, str]:
        """Offset, size and checksum of what was written since the last call. From the first call on all is hashed twice."""
        begin, digest = self._section_begin, self._section_digest or self._digest
        self._section_begin, self._section_digest = self._size, new_checksum()
        return begin, self._size - begin, digest.hexdigest()

    def stored(self, sections: tuple[Section, ...] = ()) -> StoredFile:
        checksum = self._digest.hexdigest()
        return StoredFile(self._name, self._size, checksum, self._shared, self._local, sections)
