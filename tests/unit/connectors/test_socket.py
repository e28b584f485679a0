"""Lines from a real socket."""

import socket as net
from collections.abc import Iterator
from datetime import timedelta

import pyarrow as pa
import pytest

from cutwater.connectors.socket import SocketReader, socket
from cutwater.connectors.source import END, SourceUnavailable
from cutwater.errors import ConfigError
from tests.unit.connectors.reading import CTX

SOON = timedelta(seconds=5)


@pytest.fixture
def server() -> Iterator[net.socket]:
    with net.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def connect(server: net.socket) -> tuple[SocketReader, net.socket]:
    source = socket("127.0.0.1", server.getsockname()[1], allow_data_loss=True)
    assert not source.replayable
    (split,) = source.splits_for(4)
    reader = source.open(split, None, CTX)
    return reader, server.accept()[0]


def values(batch: object) -> list[str]:
    assert isinstance(batch, pa.RecordBatch)
    return [row["value"] for row in batch.to_pylist()]


def test_lines_come_when_they_are_complete_and_the_last_one_at_the_end(server: net.socket) -> None:
    reader, sender = connect(server)
    assert reader.next_batch(10, timedelta(milliseconds=1)) is None
    assert reader.next_batch(10, timedelta(0)) is None
    sender.sendall("eins\r\nzwölf\ndr".encode())
    assert values(reader.next_batch(1, SOON)) == ["eins"]
    assert reader.position() == 1
    assert values(reader.next_batch(10, SOON)) == ["zwölf"]
    sender.sendall(b"ei\xff")
    sender.close()
    last: list[str] = []
    while (batch := reader.next_batch(10, SOON)) is not END:
        last += values(batch) if batch is not None else []
    assert last == ["drei\ufffd"]
    assert reader.position() == 3
    reader.close()


def test_nobody_listening_is_a_clear_error(server: net.socket) -> None:
    port = server.getsockname()[1]
    server.close()
    source = socket("127.0.0.1", port)
    with pytest.raises(SourceUnavailable, match=f"127.0.0.1:{port} cannot be reached: .*refused.*listening"):
        source.open(source.splits()[0], None, CTX)


def test_wrong_addresses_are_refused_at_the_call() -> None:
    for host in ("a\0b", "a..b", "x" * 64):
        with pytest.raises(ConfigError, match="host="):
            socket(host, 1)
    for host in ("::1", "127.0.0.1", "münchen.example", "localhost"):
        socket(host, 1)
    with pytest.raises(ConfigError, match="port=0"):
        socket("localhost", 0)
    with pytest.raises(ConfigError, match="host=''"):
        socket("", 1)
