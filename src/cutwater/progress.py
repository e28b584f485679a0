"""What whoever waits for a job gets to see of it."""

from contextlib import nullcontext

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cutwater.checkpoint.statistics import CheckpointStatus
from cutwater.errors import JobStillRunning
from cutwater.job.handle import Job
from cutwater.job.result import JobResult


def watch(job: Job) -> JobResult:
    """Wait for the job's end. What it logs goes to standard error; on a terminal, how it goes is shown below that."""
    console = Console(stderr=True)
    live = Live(_view(job), console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
    told = 0
    with live or nullcontext():
        while True:
            try:
                return job.wait("250ms")
            except JobStillRunning:
                if live is not None:
                    live.update(_view(job))
            finally:
                told = _tell(job, told, console)


def _tell(job: Job, told: int, console: Console) -> int:
    lines = job.log[told:]
    for line in lines:
        console.print(f"{job.name}: {line}", style="yellow", markup=False, highlight=False, soft_wrap=True)
    return told + len(lines)


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
