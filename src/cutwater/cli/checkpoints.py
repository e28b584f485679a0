"""``cutwater checkpoints``: what a storage folder or a job's folder holds, without a job running."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from rich.table import Table

from cutwater.checkpoint.checkpoint_folders import Survey
from cutwater.checkpoint.completed import CompletedCheckpoint, decode_metadata
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.layout import METADATA_FILE, JobLayout
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.checkpoint.storage_url import folder_of, open_storage
from cutwater.cli.answer import answer, console
from cutwater.cli.settings import DEFAULT_CHECKPOINTING
from cutwater.errors import ConfigError, CutwaterError


def checkpoints(place: str, job: str | None, *, as_json: bool) -> None:
    """``place``: a storage folder, a job's folder in one, or the name of a job in the default storage."""
    if place == "memory":
        raise ConfigError("memory: checkpoints in memory live and die with the driver; give the URL of a folder.")
    storage, only = _found(place)
    jobs = {name: JobStore(storage, name).survey() for name in only if job in (None, name)}
    if job is not None and job not in jobs:
        raise ConfigError(f"--job {job}: {place} holds no such job (it holds: {_listed(only)}).")
    value = {"storage": storage.url, "jobs": {name: _value(storage, survey) for name, survey in jobs.items()}}
    answer(value, lambda: _tell(storage, jobs), as_json=as_json)


def _found(place: str) -> tuple[CheckpointStorage, list[str]]:
    """The storage that is meant, and which of its jobs."""
    folder = Path(folder_of(place))
    default = open_storage(DEFAULT_CHECKPOINTING.storage)
    if (folder / METADATA_FILE).is_file():
        raise ConfigError(f"{place} is a single checkpoint; give the storage folder: {folder.parent.parent}.")
    if any((folder / "attempts").glob("*.json")):
        storage = open_storage(f"file:{folder.parent}")
        return storage, [name for name in jobs_in(storage) if JobLayout(name).folder == folder.name]
    storage = open_storage(f"file:{folder}")
    here = jobs_in(storage) if folder.is_dir() else []
    if not here and place in (known := jobs_in(default)):
        return default, [place]
    if not folder.is_dir():
        raise ConfigError(
            f"{place}: there is no folder {folder}, and no job of that name in {default.url} (it holds: {_listed(known)})."
        )
    return storage, here


def _listed(jobs: list[str]) -> str:
    return ", ".join(sorted(jobs)) or "none"


def jobs_in(storage: CheckpointStorage) -> list[str]:
    """The jobs that ever started an attempt in this storage."""
    folders = sorted({name.split("/")[0] for name in storage.list("") if name.split("/")[1:2] == ["attempts"]})
    return [name for folder in folders if (name := _job_of(storage, folder)) is not None]


def _job_of(storage: CheckpointStorage, folder: str) -> str | None:
    """A short name is legible in its folder's; a long one stands in the metadata of its checkpoints only."""
    if "~" not in folder:
        return unquote(folder)
    for name in storage.list(f"{folder}/chk-"):
        if name.endswith(f"/{METADATA_FILE}"):
            try:
                return decode_metadata(name, storage.read(name)).job
            except (CutwaterError, FileNotFoundError):
                continue
    return None


def _value(storage: CheckpointStorage, survey: Survey) -> dict[str, Any]:
    return {
        "checkpoints": [
            {
                "id": each.id,
                "kind": each.kind.value,
                "attempt": each.attempt,
                "triggered_at": _moment(each),
                "duration": each.duration,
                "state_bytes": each.size,
                "max_parallelism": each.max_parallelism,
                "path": f"{storage.url}/{each.folder}",
                "operators": {shape.vertex: list(shape.uids) for shape in each.graph},
            }
            for each in reversed(survey.completed)
        ],
        "damaged": [{"id": each.id, "problem": each.problem} for each in survey.damaged],
    }


def _tell(storage: CheckpointStorage, jobs: dict[str, Survey]) -> None:
    out = console()
    if not jobs:
        out.print(f"{storage.url} holds no checkpoints.")
    for name, survey in jobs.items():
        if not survey.completed:
            out.print(f"{name} has no completed checkpoint in {storage.url}.", markup=False)
        else:
            out.print(_table(storage, name, survey))
        for damaged in survey.damaged:
            out.print(f"checkpoint {damaged.id} is damaged: {damaged.problem}", style="red")


def _table(storage: CheckpointStorage, name: str, survey: Survey) -> Table:
    table = Table("id", "kind", "attempt", "triggered at", "took", "state", "path", title=name, title_justify="left")
    for row in _rows(storage, survey):
        table.add_row(*row)
    return table


def _rows(storage: CheckpointStorage, survey: Survey) -> Iterator[tuple[str, ...]]:
    for each in reversed(survey.completed):
        took = f"{each.duration * 1000:.0f} ms"
        path = f"{storage.url}/{each.folder}"
        yield str(each.id), each.kind.value, str(each.attempt), _moment(each), took, f"{each.size:,} B", path


def _moment(checkpoint: CompletedCheckpoint) -> str:
    return datetime.fromtimestamp(checkpoint.triggered_at, UTC).isoformat(timespec="milliseconds")
