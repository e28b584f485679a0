"""What whoever waits for a job gets to see of it: a display on a terminal, lines elsewhere."""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cutwater.checkpoint.statistics import CheckpointInfo, CheckpointStatus
from cutwater.errors import JobStillRunning
from cutwater.job.handle import Job
from cutwater.job.result import JobResult
from cutwater.terminal import Terminal

LOOK_AGAIN = "200ms"


def watch(job: Job, meanwhile: Callable[[], None] = lambda: None) -> JobResult:
    """Wait for the job's end. What it logs goes to standard error; on a terminal, how it goes is shown below that.
    Ctrl-C cancels the job, and so does a reader of its output that leaves: BrokenPipeError, as from ``print``.

    ``meanwhile`` is called some times a second.
    """
    console = Terminal(stderr=True)
    view = _View(job)
    live = Live(view.render(), console=console, refresh_per_second=4, transient=True) if console.is_terminal else None

    def tell(line: str) -> None:
        console.print(f"{job.name}: {line}", style="yellow", markup=False, highlight=False, soft_wrap=True)

    def look() -> None:
        if live is not None:
            live.update(view.render())
        meanwhile()

    with _canceled_by_whoever_leaves(job), live or nullcontext():
        return _await_end(job, tell, look)


def watch_in_lines(job: Job, say: Callable[[str], None], meanwhile: Callable[[], None] = lambda: None) -> JobResult:
    """Wait for the job's end. Changes of status, checkpoints that end and what the job logs are each a line."""
    job.on_checkpoint(lambda info: say(checkpoint_line(info)))
    status = ""

    def look() -> None:
        nonlocal status
        if job.status != status:
            status = job.status
            say(f"{job.name}: {status}")
        meanwhile()

    with _canceled_by_whoever_leaves(job):
        return _await_end(job, say, look)


@contextmanager
def _canceled_by_whoever_leaves(job: Job) -> Iterator[None]:
    """Who ran the job by watching it has no other way to end it than Ctrl-C, or to read no further."""
    try:
        yield
    except KeyboardInterrupt:
        job.cancel()
        raise
    except BrokenPipeError:
        job.end_unread()
        raise
    if job.reader_left:
        raise BrokenPipeError(errno.EPIPE, "standard output was closed while the job printed to it")


def _await_end(job: Job, tell: Callable[[str], None], look: Callable[[], None]) -> JobResult:
    told = 0
    while True:
        try:
            look()
            return job.wait(LOOK_AGAIN)
        except JobStillRunning:
            continue
        finally:
            lines, told = job.log_since(told)
            for line in lines:
                tell(line)


def checkpoint_line(info: CheckpointInfo) -> str:
    name = "checkpoint" if info.id is None else f"checkpoint {info.id}"
    line = f"{name} {info.status.value} in {info.duration * 1000:.0f} ms, state {info.state_bytes:,} B"
    return f"{line}: {info.failure_reason}" if info.failure_reason else line


class _View:
    """Remembers what was shown last, for the rates."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._began = time.monotonic()
        self._seen: dict[str, tuple[float, int]] = {}
        self._rates: dict[str, float] = {}

    def render(self) -> Group:
        job = self._job
        head = Text(f"{job.name}: {job.status}", style="bold")
        head.append(f"  {time.monotonic() - self._began:.0f} s", style="dim")
        if job.detail:
            head.append(f"  {job.detail.splitlines()[0]}", style="dim")
        table = Table("subtask", box=None, pad_edge=False, header_style="dim")
        for column in ("records in", "per second", "records out", "inbox", "held"):
            table.add_column(column, justify="right")
        for subtask, progress in sorted(job.progress.items()):
            table.add_row(
                str(subtask),
                f"{progress.records_in:,}",
                f"{self._rate(str(subtask), progress.records_in):,.0f}",
                f"{progress.records_out:,}",
                f"{progress.inbox_bytes:,} B",
                f"{progress.held_bytes:,} B",
            )
        return Group(head, table, self._checkpoints())

    def _rate(self, subtask: str, records: int) -> float:
        """Counters arrive about once a second and begin anew with each attempt."""
        now = time.monotonic()
        at, before = self._seen.get(subtask, (now, records))
        if records < before:
            self._rates[subtask] = 0.0
        elif records > before and now > at:
            self._rates[subtask] = (records - before) / (now - at)
        if records != before or subtask not in self._seen:
            self._seen[subtask] = (now, records)
        elif now - at > 3:
            self._rates[subtask] = 0.0
        return self._rates.get(subtask, 0.0)

    def _checkpoints(self) -> Text:
        completed = [info for info in self._job.checkpoints() if info.status is CheckpointStatus.COMPLETED]
        tail = Text(f"{len(completed)} checkpoints completed")
        if completed:
            latest = completed[0]
            tail.append(f"; latest: {latest.id}, {latest.duration * 1000:.0f} ms, {latest.state_bytes:,} B")
        return tail
