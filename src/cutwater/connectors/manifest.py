"""Which files each checkpoint made visible, so that a reader can see whole checkpoints only."""

import json
from collections.abc import Sequence
from pathlib import Path

from cutwater.connectors.disk import Disk
from cutwater.connectors.input_files import local_path
from cutwater.connectors.sink import Json
from cutwater.connectors.staging import Staging, slug


def committed_files(path: str | Path) -> list[str]:
    """The files of a sink's folder whose checkpoint is committed by every subtask.

    Each file of the folder is complete by itself; reading only these gives either all rows of a checkpoint or none.
    """
    staging = Staging(Path(local_path(path, "committed_files", needed="a folder")))
    names = {name for manifest in staging.manifests.glob("*.json") for name in _files_in(manifest)}
    return [str(staging.target / name) for name in sorted(names)]


def write_manifest(disk: Disk, staging: Staging, checkpoint: int, committables: Sequence[Json]) -> None:
    """Atomic, and the same again when repeated; what an earlier one of the same checkpoint listed stays listed."""
    first = committables[0]
    path = staging.manifest(first["incarnation"], first["uid"], checkpoint)
    names = {file["final"] for committable in committables for file in committable["files"]}
    names.update(_files_in(path) if path.exists() else ())
    content = {
        "incarnation": first["incarnation"],
        "uid": first["uid"],
        "checkpoint": checkpoint,
        "attempt": max(committable["attempt"] for committable in committables),
        "files": sorted(names),
    }
    disk.create_folder(staging.manifests)
    writing = path.with_suffix(".writing")
    disk.write_new(writing, json.dumps(content, indent=1).encode())
    disk.sync_file(writing)
    disk.rename(writing, path)
    disk.sync_folder(staging.manifests)


def was_committed(staging: Staging, committable: Json, final: str) -> bool:
    """Whether a manifest of the committable's checkpoint or a later one lists the file."""
    prefix = f"{slug(committable['incarnation'])}-{slug(committable['uid'])}-"
    return any(final in _files_in(manifest) for manifest in staging.manifests.glob(f"{prefix}*.json"))


def last_committed(staging: Staging, incarnation: str, uid: str) -> tuple[int, int] | None:
    """The newest checkpoint that has a manifest, and the last attempt that prepared any of it."""
    manifests = staging.manifests.glob(f"{slug(incarnation)}-{slug(uid)}-{'[0-9]' * 10}.json")
    newest = max(manifests, default=None)
    if newest is None:
        return None
    content = json.loads(newest.read_bytes())
    return int(content["checkpoint"]), int(content["attempt"])


def _files_in(manifest: Path) -> list[str]:
    files: list[str] = json.loads(manifest.read_bytes())["files"]
    return files
