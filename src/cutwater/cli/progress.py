"""How a job goes, for somebody who waits for it: a display on a terminal, lines elsewhere, or nothing."""

import sys
import time
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cutwater.checkpoint.statistics import CheckpointInfo, CheckpointStatus
from cutwater.job.handle import Job
from cutwater.job.result import JobResult

LOOK_AGAIN = "200ms"


def watch(job: Job) -> JobResult:
    """Wait for the job's end, showing how it goes if standard error is a terminal; silent if it is not."""
    if not sys.stderr.isatty():
        return job.wait()
    return watch_on_terminal(job)


def watch_on_terminal(job: Job, meanwhile: Callable[[], None] = lambda: None) -> JobResult:
    """``meanwhile`` is called some times a second. What the job logs stays on the screen above the display."""
    view = _View(job)
    with Live(view.render(), console=Console(stderr=True), refresh_per_second=4, transient=True) as live:
        told = 0
        while True:
            try:
                return job.wait(LOOK_AGAIN)
            except TimeoutError:
                meanwhile()
            finally:
                for line in job.log[told:]:
                    live.console.print(Text(line, style="yellow"))
                    told += 1
            live.update(view.render())


def watch_in_lines(job: Job, say: Callable[[str], None], meanwhile: Callable[[], None] = lambda: None) -> JobResult:
    """Changes of status, checkpoints that end and what the job logs, each as a line."""
    job.on_checkpoint(lambda info: say(checkpoint_line(info)))
    told, status = 0, ""
    while True:
        if job.status != status:
            status = job.status
            say(f"{job.name}: {status}")
        for line in job.log[told:]:
            say(line)
            told += 1
        try:
            return job.wait(LOOK_AGAIN)
        except TimeoutError:
            meanwhile()


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
