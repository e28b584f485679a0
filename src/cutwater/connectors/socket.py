"""Lines from a TCP socket: for trying things out, as nothing can be asked for twice."""

import socket as net
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import pyarrow as pa

from cutwater.arguments import takes_no_others
from cutwater.connectors.flag import checked_flag
from cutwater.connectors.source import END, EndOfSplit, Json, Source, SourceContext, SourceUnavailable, SplitReader
from cutwater.errors import ConfigError, DataError

SCHEMA: Final = pa.schema([pa.field("value", pa.string())])
CONNECT_SECONDS = 10.0
RECEIVED_BYTES = 256 * 1024
LONGEST_LINE_BYTES = 64 << 20


@takes_no_others
def socket(host: str, port: int, *, allow_data_loss: bool = False) -> "SocketSource":
    """The lines that ``host:port`` sends, until it closes the connection. What is not UTF-8 is replaced by U+FFFD.

    Exactly once needs ``allow_data_loss=True``: after a failure, lines since the last checkpoint are lost.
    """
    return SocketSource(host, port, allow_data_loss)


class SocketSource(Source):
    schema = SCHEMA
    replayable = False

    def __init__(self, host: str, port: int, allow_data_loss: bool) -> None:
        self.host, self.port = _checked_host(host), _checked_port(port)
        self.allow_data_loss = checked_flag("socket", "allow_data_loss", allow_data_loss)

    def splits(self) -> Sequence[Json]:
        return [{"host": self.host, "port": self.port}]

    def open(self, split: Json, position: Json | None, ctx: SourceContext) -> "SocketReader":
        return SocketReader(split["host"], split["port"], position or 0)

    def describe(self) -> str:
        return f"socket({self.host}:{self.port})"


def _checked_host(host: object) -> str:
    if not isinstance(host, str) or not host or "\0" in host:
        raise ConfigError(f"socket: host={host!r}; a name or an address is needed")
    try:
        host.encode("idna")  # as whoever looks it up does
    except UnicodeError as error:
        raise ConfigError(f"socket: host={host!r} is no name or address: {error.__cause__ or error}") from None
    return host


def _checked_port(port: object) -> int:
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        raise ConfigError(f"socket: port={port!r}; allowed are 1 to 65535")
    return port


class SocketReader(SplitReader):
    """Position: how many lines were returned, over all connections. It cannot be gone back to."""

    def __init__(self, host: str, port: int, lines: int) -> None:
        self._address, self._lines = f"{host}:{port}", lines
        try:
            self._socket = net.create_connection((host, port), CONNECT_SECONDS)
        except OSError as error:
            raise SourceUnavailable(
                f"socket: {self._address} cannot be reached: {error}; is something listening there, and reachable from "
                "the workers?"
            ) from error
        self._waiting: list[bytes] = []
        self._rest = b""
        self._closed_by_sender = False

    def next_batch(self, max_rows: int, timeout: timedelta) -> pa.RecordBatch | EndOfSplit | None:
        if not self._waiting and not self._closed_by_sender:
            self._receive(timeout.total_seconds())
        if not self._waiting:
            return END if self._closed_by_sender else None
        taken, self._waiting = self._waiting[:max_rows], self._waiting[max_rows:]
        self._lines += len(taken)
        texts = [line.removesuffix(b"\r").decode("utf-8", "replace") for line in taken]
        return pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], schema=SCHEMA)

    def position(self) -> Json:
        return self._lines

    def close(self) -> None:
        self._socket.close()

    def _receive(self, timeout: float) -> None:
        """One piece of what came; a line is complete with its line end, the last one with the end of the connection."""
        self._socket.settimeout(timeout)
        try:
            data = self._socket.recv(RECEIVED_BYTES)
        except (TimeoutError, BlockingIOError):
            return
        except OSError as error:
            raise SourceUnavailable(f"socket: the connection to {self._address} broke: {error}") from error
        if not data:
            self._closed_by_sender = True
            self._waiting = [self._rest] if self._rest else []
            return
        *self._waiting, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE_BYTES:
            raise DataError(
                f"socket: {self._address} sent {len(self._rest)} bytes without a line end; are these lines?"
            )
