"""``cutwater run``: a pipeline from a file, to its end."""

import sys
from typing import Any

from rich.table import Table

from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.start import RefuseStart, choose_start
from cutwater.checkpoint.verification import open_checkpoint
from cutwater.cli.answer import answer, console, kept_clear
from cutwater.cli.pipeline_file import PipelineFile, load
from cutwater.cli.settings import DEFAULT_CHECKPOINTING, Settings, parse
from cutwater.cli.waiting import Waiting, told_if_long
from cutwater.config import CheckpointMode
from cutwater.environment import Environment, storage_of
from cutwater.errors import CutwaterError, RestoreError
from cutwater.job.handle import Job
from cutwater.job.result import JobResult
from cutwater.pipeline import checked_parallelism
from cutwater.progress import watch

SHOWN_ROWS = 20


def run(
    file: str,
    *,
    restore: str,
    parallelism: int | None,
    checkpoints: str | None,
    master: str | None,
    pairs: list[str],
    name: str | None,
    as_json: bool,
) -> None:
    settings = parse(pairs, checkpoints)
    job_name = name or _name_of(file)
    with kept_clear(as_json=as_json):
        env = _environment(load(file), settings, master, parallelism)
        _refuse_what_cannot_be_restored(env, job_name, restore)
        collected = list(env.define("check", env.parallelism or 1).collected)
        with told_if_long(_say, f"{job_name}: starting (Spark takes some seconds)"):
            job = env.start(job_name, restore)
        result = _watched(job)
    answer(_value(job_name, result, collected), lambda: _tell(job_name, result, collected), as_json=as_json)


def _watched(job: Job) -> JobResult:
    """On a terminal the display shows what is waited for."""
    waiting = Waiting(lambda line: _say(f"{job.name}: {line}"))
    look = (lambda: None) if sys.stderr.isatty() else (lambda: waiting.look(job.status, job.detail))
    return watch(job, look)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _environment(file: PipelineFile, settings: Settings, master: str | None, parallelism: int | None) -> Environment:
    """Settings of the command line are laid over those of the file, which may set its own in ``pipeline(env)`` too."""
    if master is not None or settings.spark:
        from cutwater.spark.session import open_session

        with told_if_long(_say, f"starting Spark on master {master or 'local'}"):
            open_session(master, settings.spark)
    env = file.new_environment() or Environment(checkpointing=DEFAULT_CHECKPOINTING)
    file.write_into(env)
    env.checkpointing = settings.over(env.checkpointing)
    if parallelism is not None:
        env.parallelism = checked_parallelism(parallelism)
    return env


def _refuse_what_cannot_be_restored(env: Environment, job_name: str, restore: str) -> None:
    """What ``env.start`` would find too, but only when Spark runs."""
    if restore == "latest" and env.checkpointing is not None:
        start = choose_start(
            restore,
            JobStore(storage_of(env.checkpointing), job_name).facts(
                restore,
                all_sinks_idempotent=False,
                on_damaged="fail",
                at_most_once=env.checkpointing.mode is CheckpointMode.AT_MOST_ONCE,
            ),
        )
        if isinstance(start, RefuseStart):
            raise RestoreError(start.reason)
    elif restore not in ("auto", "latest", "fresh", ""):
        try:
            open_checkpoint(restore)
        except CutwaterError as error:
            raise RestoreError(f"restore={restore!r}: {error}") from None


def _name_of(file: str) -> str:
    return file.rsplit("/", 1)[-1].removesuffix(".py")


def _value(name: str, result: JobResult, collected: list[str]) -> dict[str, Any]:
    return {
        "job": name,
        "status": result.status,
        "attempts": result.attempts,
        "checkpoints": result.checkpoints,
        "records_in": result.records_in,
        "records_out": result.records_out,
        "seconds": round(result.seconds, 3),
        "collected": {output: result.to_polars(output).to_dicts() for output in collected},
    }


def _tell(name: str, result: JobResult, collected: list[str]) -> None:
    out = console()
    for output in collected:
        frame = result.to_polars(output)
        table = Table(*frame.columns, title=f"{output} ({frame.height} rows)", title_justify="left")
        for row in frame.head(SHOWN_ROWS).iter_rows():
            table.add_row(*map(str, row))
        out.print(table)
        if frame.height > SHOWN_ROWS:
            out.print(f"... and {frame.height - SHOWN_ROWS} more")
    out.print(
        f"{name}: {result.status} in {result.seconds:.1f} s, {result.records_in:,} records in, "
        f"{result.records_out:,} out, {result.checkpoints} checkpoints, {result.attempts} "
        f"{'attempt' if result.attempts == 1 else 'attempts'}"
    )
