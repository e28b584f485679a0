"""``cutwater demo``: a word count with checkpoints every second loses a worker to SIGKILL, and its result does not show it."""

import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from cutwater.aggregates import count
from cutwater.cli.answer import FAILED, answer, console
from cutwater.cli.paced import Paced
from cutwater.config import Checkpointing
from cutwater.connectors.text import text_files
from cutwater.environment import Environment
from cutwater.job.handle import Job
from cutwater.job.result import JobResult
from cutwater.progress import watch, watch_in_lines

FILES = 2
REPEATS = 100
LINES_PER_SECOND = 700
"""Per file: the stream takes about eight seconds."""
CHECKPOINTS_BEFORE_THE_KILL = 3
TOP = 8

_WORD = re.compile(r"[a-z]+")


def words(line: str) -> list[str]:
    return _WORD.findall(line.lower())


def pipeline(env: Environment, folder: Path) -> None:
    lines = env.read(Paced(text_files(folder), LINES_PER_SECOND), uid="lines")
    counted = lines.flat_map(lambda row: [(word,) for word in words(row.value)], "word string")
    counted.key_by("word").agg(n=count()).uid("counts").collect("counts")


def demo(*, as_json: bool) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cutwater-demo-") as folder:
        lines = write_text(Path(folder, "text"))
        truth = Counter(word for line in lines for word in words(line))
        _say(f"{len(lines):,} lines, {truth.total():,} words; starting Spark (no services, all on this machine)")
        env = Environment(parallelism=2, checkpointing=Checkpointing("1s", storage=f"file:{folder}/checkpoints"))
        pipeline(env, Path(folder, "text"))
        job = env.start("demo")
        killer = Killer(job)
        result = _watch(job, killer)
        found = final_counts(result)
    report = {
        "equal": found == truth and result.attempts > 1,
        "words": truth.total(),
        "distinct": len(truth),
        "top": [{"word": word, "n": n, "plain_count": truth[word]} for word, n in found.most_common(TOP)],
        "attempts": result.attempts,
        "checkpoints": result.checkpoints,
        "killed": killer.killed,
        "stream_seconds": round(result.seconds, 1),
        "seconds": round(time.monotonic() - began, 1),
    }
    answer(report, lambda: _tell(report, _differences(found, truth)), as_json=as_json)
    if not report["equal"]:
        raise typer.Exit(FAILED)


def write_text(folder: Path) -> list[str]:
    """The bundled text, often enough to last; returns the lines."""
    text = files("cutwater.cli").joinpath("demo_text.txt").read_text(encoding="utf-8")
    folder.mkdir()
    for number in range(FILES):
        (folder / f"part-{number}.txt").write_text(text * REPEATS, encoding="utf-8")
    return text.splitlines() * (REPEATS * FILES)


def final_counts(result: JobResult) -> Counter[str]:
    """Running counts arrive in order: the last row of a word is its count."""
    counts: Counter[str] = Counter()
    for row in result.rows("counts"):
        counts[row.word] = row.n
    return counts


class Killer:
    """Kills one counting worker, once, in the middle of the stream and some way behind a checkpoint."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._completed_at: list[float] = []
        self.killed: dict[str, Any] | None = None
        job.on_checkpoint(lambda _: self._completed_at.append(time.monotonic()))

    def __call__(self) -> None:
        """Some times a second, from the thread that waits for the job."""
        behind = len(self._completed_at) >= CHECKPOINTS_BEFORE_THE_KILL
        if self.killed is not None or not behind or time.monotonic() - self._completed_at[-1] < 0.3:
            return
        for subtask, (_, pid) in sorted(self._job.workers.items()):
            if subtask.vertex == "counts":
                os.kill(pid, signal.SIGKILL)
                self.killed = {"subtask": str(subtask), "pid": pid, "after_checkpoints": len(self._completed_at)}
                _say(f"kill -9 {pid}: the worker of {subtask} is gone, with all counts it held in memory")
                return


def _watch(job: Job, meanwhile: Callable[[], None]) -> JobResult:
    if sys.stderr.isatty():
        return watch(job, meanwhile)
    return watch_in_lines(job, _say, meanwhile)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _differences(found: Counter[str], truth: Counter[str]) -> list[str]:
    wrong = sorted(word for word in found | truth if found[word] != truth[word])
    return [f"{word}: counted {found[word]}, it is {truth[word]}" for word in wrong]


def _tell(report: dict[str, Any], differences: list[str]) -> None:
    out = console()
    table = Table("word", box=None, pad_edge=False, header_style="dim")
    table.add_column("the stream's count", justify="right")
    table.add_column("plain count", justify="right")
    for each in report["top"]:
        table.add_row(each["word"], f"{each['n']:,}", f"{each['plain_count']:,}")
    out.print(table)
    if report["killed"] is None:
        out.print(Text("The stream ended before a worker could be killed, so nothing was proven.", style="red"))
    elif report["equal"]:
        out.print(
            Text(f"All {report['distinct']} words: equal to a plain count, as if nothing had happened.", style="green")
        )
    else:
        out.print(Text(f"NOT equal to a plain count: {'; '.join(differences[:10])}", style="red"))
    out.print(
        f"{report['words']:,} words, {report['checkpoints']} checkpoints, {report['attempts']} attempts, "
        f"{report['seconds']} s with Spark's start"
    )
