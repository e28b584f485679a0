"""A progress display for a job that somebody waits for; silent when nobody looks at a terminal."""

import sys

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cutwater.checkpoint.statistics import CheckpointStatus
from cutwater.job.handle import Job
from cutwater.job.result import JobResult


def watch(job: Job) -> JobResult:
    """Wait for the job's end, showing how it goes if standard error is a terminal."""
    if not sys.stderr.isatty():
        return job.wait()
    with Live(_view(job), console=Console(stderr=True), refresh_per_second=4, transient=True) as live:
        while True:
            try:
                return job.wait("250ms")
            except TimeoutError:
                live.update(_view(job))


def _view(job: Job) -> Group:
    ended = job.checkpoints()
    completed = [info for info in ended if info.status is CheckpointStatus.COMPLETED]
    head = Text(f"{job.name}: {job.status}", style="bold")
    if job.detail:
        head.append(f"  {job.detail}", style="dim")
    table = Table("subtask", "records in", "records out", "inbox", "held", box=None, pad_edge=False)
    for subtask, progress in sorted(job.progress.items()):
        table.add_row(
            str(subtask),
            f"{progress.records_in:,}",
            f"{progress.records_out:,}",
            f"{progress.inbox_bytes:,} B",
            f"{progress.held_bytes:,} B",
        )
    tail = Text(f"{len(completed)} checkpoints completed")
    if completed:
        latest = completed[0]
        tail.append(f"; latest {latest.id}: {latest.duration * 1000:.0f} ms, {latest.state_bytes:,} B")
    return Group(head, table, tail)
