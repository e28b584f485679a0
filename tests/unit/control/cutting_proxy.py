"""A TCP proxy between client and driver that cuts the connection when told to."""

import contextlib
import socket
import threading

_PATIENCE = 30.0


class CuttingProxy:
    """Passes bytes on until told to cut."""

    def __init__(self, target: str) -> None:
        host, _, port = target.removeprefix("tcp://").rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self.cuts = 0
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "CuttingProxy":
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(_PATIENCE)

    def cut(self) -> None:
        with self._lock:
            self.cuts += 1
            for end in (end for pair in self._pairs for end in pair):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
            self._pairs.clear()

    def _accept(self) -> None:
        while True:
            try:
                inner, _ = self._listener.accept()
            except OSError:
                return
            outer = socket.create_connection(self._target)
            with self._lock:
                self._pairs.append((inner, outer))
            for source, target in ((inner, outer), (outer, inner)):
                thread = threading.Thread(target=self._pass_on, args=(source, target), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.close()
