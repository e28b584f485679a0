"""Wakes a thread that waits in a poll, from any other thread."""

import contextlib
import socket


class Wakeup:
    """A poll on ``fileno()`` returns after ``wake``; ``clear`` is called by the woken thread only, before it looks."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        """A full buffer means that the thread is being woken anyway; a closed one that it has ended."""
        with contextlib.suppress(OSError):
            self._writer.send(b"\0")

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def close(self) -> None:
        self._writer.close()
        self._reader.close()
