"""Which files each checkpoint made visible, so that a reader can see whole checkpoints only.

Each checkpoint that is committed adds a file. Many of them are folded into one by and by (``manifest_folding.py``): the new file
is there before the first of the old ones goes, so what is listed twice for a while is never unlisted.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cutwater.connectors.disk import Disk
from cutwater.connectors.input_files import local_path
from cutwater.connectors.sink import Json
from cutwater.connectors.staging import Staging, checkpoint_of

_NAME: Final = re.compile(r"(\d{10,})(?:-(\d{10,})\.(\d))?\.json")
_FOLDED: Final = re.compile(r".*-\d{10,}-\d{10,}\.\d\.json")


@dataclass(frozen=True, slots=True, order=True)
class Manifest:
    """A file that lists those of the checkpoints from ``first`` to ``last``. ``level``: how often they were folded; 0 is that of a
    single checkpoint."""

    last: int
    first: int
    level: int
    path: Path


def committed_files(path: str | Path) -> list[str]:
    """The files of a sink's folder whose checkpoint is committed by every subtask.

    Each file of the folder is complete by itself; reading only these gives either all rows of a checkpoint or none.
    """
    staging = Staging(Path(local_path(path, "committed_files", needed="a folder")))
    contents = _contents(lambda: staging.manifests.glob("*.json"))
    names = {name for content in contents for name in content["files"]}
    return [str(staging.target / name) for name in sorted(names)]


def write_manifest(disk: Disk, staging: Staging, checkpoint: int, committables: Sequence[Json]) -> None:
    """Atomic, and the same again when repeated; what an earlier one of the same checkpoint listed stays listed."""
    first = committables[0]
    path = staging.manifest(first["incarnation"], first["uid"], checkpoint)
    names = {file["final"] for committable in committables for file in committable["files"]}
    attempt = max(committable["attempt"] for committable in committables)
    store_manifest(disk, path, first["incarnation"], first["uid"], checkpoint, attempt, names)


def store_manifest(
    disk: Disk, path: Path, incarnation: str, uid: str, checkpoint: int, attempt: int, names: Iterable[str]
) -> None:
    """``checkpoint``: the last of those it lists; ``attempt``: the last that prepared any of that."""
    before = json.loads(path.read_bytes())["files"] if path.exists() else ()
    content = {
        "incarnation": incarnation,
        "uid": uid,
        "checkpoint": checkpoint,
        "attempt": attempt,
        "files": sorted({*names, *before}),
    }
    disk.create_folder(path.parent)
    writing = path.with_suffix(".writing")
    disk.write_new(writing, json.dumps(content, indent=1).encode())
    disk.sync_file(writing)
    disk.rename(writing, path)
    disk.sync_folder(path.parent)


def manifests_of(staging: Staging, incarnation: str, uid: str) -> list[Manifest]:
    """Those of one sink, oldest first."""
    prefix = staging.manifest_prefix(incarnation, uid)
    found = ((path, _NAME.fullmatch(path.name.removeprefix(prefix))) for path in staging.manifests.glob(f"{prefix}*"))
    return sorted(
        Manifest(last=int(name[2] or name[1]), first=int(name[1]), level=int(name[3] or 0), path=path)
        for path, name in found
        if name is not None
    )


def was_committed(staging: Staging, committable: Json, final: str) -> bool:
    """Whether a manifest of the committable's checkpoint or a later one lists the file."""

    def candidates() -> list[Path]:
        manifests = manifests_of(staging, committable["incarnation"], committable["uid"])
        return [each.path for each in manifests if each.last >= committable["checkpoint"]]

    return any(final in content["files"] for content in _contents(candidates))


def last_committed(staging: Staging, incarnation: str, uid: str) -> tuple[int, int] | None:
    """The newest checkpoint that has a manifest, and the last attempt that prepared any of it."""
    manifests = manifests_of(staging, incarnation, uid)
    if not manifests:
        return None
    content = json.loads(manifests[-1].path.read_bytes())  # the newest is never folded
    return int(content["checkpoint"]), int(content["attempt"])


def committed_behind(staging: Staging, incarnation: str, uid: str, checkpoint: int) -> str | None:
    """A committed file with rows behind the cut of ``checkpoint``, if there is one.

    Asked of the files: a restored checkpoint's manifest lists under its own id what an earlier one had prepared.
    """

    def candidates() -> list[Path]:
        return [each.path for each in manifests_of(staging, incarnation, uid) if each.last > checkpoint]

    names = (name for content in _contents(candidates) for name in content["files"])
    return next((name for name in names if checkpoint_of(name) > checkpoint), None)


def _contents(listed: Callable[[], Iterable[Path]]) -> Iterator[Json]:
    """Of every manifest that is there, though some are folded meanwhile.

    A listing may miss both a manifest that goes and the new one that lists its files; but the new one was there first, so that
    the next listing shows it.
    """
    unread, read = list(listed()), set[Path]()
    while True:
        for path in unread:
            try:
                content = json.loads(path.read_bytes())
            except FileNotFoundError:
                continue
            read.add(path)
            yield content
        unread = [path for path in listed() if path not in read and _FOLDED.fullmatch(path.name)]
        if not unread:
            return
