"""Printed rows where somebody reads them, where nobody does, where nobody ever did, and where there is no room for them."""

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import cutwater as cw
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.errors import CutwaterError
from cutwater.job.standard_output import StandardOutput
from cutwater.testing.clock import ManualClock
from cutwater.testing.simulation import Simulation


class Heard:
    """What the job learns of its standard output."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.left = 0
        self.output = StandardOutput(self.log.append, self._reader_left)

    def _reader_left(self) -> None:
        self.left += 1


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[io.TextIOWrapper], None]]:
    """Makes a stream the standard output of this process for the time of a test."""
    streams: list[io.TextIOWrapper] = []

    def become(stream: io.TextIOWrapper) -> None:
        streams.append(stream)
        monkeypatch.setattr(sys, "stdout", stream)

    yield become
    for stream in streams:
        with suppress(OSError):
            stream.close()


def test_lines_are_there_when_the_call_returns(heard: Heard, capsys: pytest.CaptureFixture[str]) -> None:
    heard.output.write(["n=1", "n=2"])
    assert capsys.readouterr().out == "n=1\nn=2\n"
    assert heard.log == []


@pytest.mark.parametrize("how", ["never opened", "closed by the program"])
def test_without_a_standard_output_rows_are_dropped_which_is_told_once(
    heard: Heard, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", None if how == "never opened" else closed)
    for _ in range(3):
        heard.output.write(["n=1"])
    assert heard.log == ["there is no standard output: rows to be printed are dropped; the job goes on"]
    assert heard.left == 0


def test_a_reader_that_left_is_told_once(heard: Heard, opened: Callable[[io.TextIOWrapper], None]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    opened(io.TextIOWrapper(os.fdopen(writing, "wb")))
    for _ in range(3):
        heard.output.write(["n=1"])
    assert (len(heard.log), heard.left) == (1, 1)


def test_an_output_without_room_is_an_error_of_the_system(
    heard: Heard, opened: Callable[[io.TextIOWrapper], None]
) -> None:
    opened(io.TextIOWrapper(io.BufferedWriter(io.FileIO("/dev/full", "w"))))
    for _ in range(2):
        with pytest.raises(OSError) as full:
            heard.output.write(["n=1"])
        assert full.value.errno == errno.ENOSPC
    assert (heard.log, heard.left) == ([], 0)


def test_characters_that_the_terminal_cannot_show_are_spelled_out(
    heard: Heard, opened: Callable[[io.TextIOWrapper], None]
) -> None:
    shown = io.BytesIO()
    opened(io.TextIOWrapper(shown, encoding="ascii"))
    heard.output.write(["word=stra\u00dfe"])
    assert shown.getvalue() == b"word=stra\\xdfe\n"


class NoRoom(Simulation):
    def printed(self, lines: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_rows_that_cannot_be_printed_fail_the_attempt_for_good_and_in_words() -> None:
    env = cw.Environment(parallelism=1, checkpointing=None)
    env.read(cw.sequence(10), uid="numbers").print()
    simulation = NoRoom(env.define("job", 1), JobStore(MemoryStorage(), "job"), ManualClock())
    with pytest.raises(CutwaterError, match=r"standard output.* fails: No space left on device"):
        while True:
            assert simulation.step() or simulation.advance_to_next_timer()
    assert simulation.driver.failure is not None and simulation.driver.failure.permanent
