"""The documents' word count: as it stands, on scripted lines and a clock of their own; and on Spark, from a real socket."""

import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cutwater as cw
from tests.examples.conftest import EXAMPLES

Example = Callable[[str], ModuleType]
ADVANCE, CHECKPOINT, FAIL = cw.testing.ADVANCE, cw.testing.CHECKPOINT, cw.testing.FAIL
PATIENCE_SECONDS = 240


def _by_window(rows: list[Any]) -> list[dict[str, int]]:
    found: dict[Any, dict[str, int]] = {}
    for row in rows:
        counts = found.setdefault(row.window_start, {})
        assert row.word not in counts, "a word is told once for each window"
        counts[row.word] = row.n
        assert row.window_end - row.window_start == timedelta(seconds=5)
    return [found[start] for start in sorted(found)]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_words_are_counted_by_the_five_seconds_in_which_they_came(example: Example, parallelism: int) -> None:
    lines = cw.testing.script("To be, or not", "to BE;", ADVANCE("5s"), "", ADVANCE("5s"), "to sleep")
    (rows,) = cw.testing.run(example("word_count_windows").pipeline, {"text": lines}, parallelism=parallelism).values()
    assert _by_window(rows) == [{"to": 2, "be": 2, "or": 1, "not": 1}, {"to": 1, "sleep": 1}]


def test_an_open_window_is_counted_on_behind_a_failure(example: Example) -> None:
    lines = cw.testing.script("to be", CHECKPOINT, "lost?", FAIL, "to sleep", ADVANCE("5s"))
    (rows,) = cw.testing.run(example("word_count_windows").pipeline, {"text": lines}).values()
    assert _by_window(rows) == [{"to": 2, "be": 1, "lost": 1, "sleep": 1}]


def test_its_configuration_is_the_documents(example: Example) -> None:
    env = example("word_count_windows").environment()
    settings = env.checkpointing
    assert env.state_backend == cw.Memory(asynchronous=False)
    assert (settings.interval, settings.min_pause) == (timedelta(seconds=1), timedelta(milliseconds=500))
    assert (settings.timeout, settings.max_concurrent) == (timedelta(minutes=1), 1)
    assert settings.tolerable_failures >= 1_000_000, "no failed checkpoint fails the job"
    assert settings.unaligned and settings.aligned_timeout is None
    assert str(settings.mode) == "exactly_once" and settings.storage == "file:checkpoints"


@pytest.mark.timeout(PATIENCE_SECONDS + 60)
def test_it_runs_on_spark_from_a_real_socket_as_it_is_started_by_a_user(tmp_path: Path) -> None:
    """`cutwater run`, a line every tenth of a second for six seconds: more than one window, and every word in one of them."""
    sent = ["the river the boat"] * 60
    with socket.create_server(("localhost", 0)) as server, (tmp_path / "stderr.txt").open("w") as log:
        environment = {**os.environ, "HOST": "localhost", "PORT": str(server.getsockname()[1])}
        command = [sys.executable, "-m", "cutwater.cli.main", "run", str(EXAMPLES / "word_count_windows.py")]
        process = subprocess.Popen(
            [*command, "--parallelism", "2"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            server.settimeout(PATIENCE_SECONDS)
            connection, _ = server.accept()
            with connection:
                for line in sent:
                    connection.sendall(line.encode() + b"\n")
                    time.sleep(0.1)
            printed, _ = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
            process.communicate()
    assert process.returncode == 0, (tmp_path / "stderr.txt").read_text()
    told = re.findall(r"word=(\w+), window_start=([^,]+), window_end=[^,]+, n=(\d+)", printed)
    counts: Counter[str] = Counter()
    for word, _, n in told:
        counts[word] += int(n)
    assert counts == Counter(" ".join(sent).split()), printed
    assert len({start for _, start, _ in told}) >= 2, "more than one window"
