"""Where output files wait until their checkpoint completes: beside the target folder, never inside it."""

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePath
from typing import Final

from cutwater.connectors.sink import SinkContext


class Stage(Enum):
    """``OPEN`` files were never prepared, so no checkpoint lists them; ``READY`` ones may be listed."""

    OPEN = "open"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class StagedName:
    """What a staged file's name says about where it comes from. No glob for data files matches it."""

    attempt: int
    parallelism: int
    subtask: int
    transaction: str
    index: int
    stage: Stage

    def __str__(self) -> str:
        return f"a{self.attempt}-p{self.parallelism}-s{self.subtask}-{self.transaction}-{self.index}.{self.stage.value}"

    @classmethod
    def read(cls, name: str) -> "StagedName | None":
        found = _STAGED.fullmatch(name)
        if found is None:
            return None
        attempt, parallelism, subtask, transaction, index, stage = found.groups()
        return cls(int(attempt), int(parallelism), int(subtask), transaction, int(index), Stage(stage))


_STAGED: Final = re.compile(r"a(\d+)-p(\d+)-s(\d+)-([0-9a-f]+)-(\d+)\.(open|ready)")


@dataclass(frozen=True, slots=True)
class Staging:
    """The layout beside a target: ``.<target>.cutwater/<incarnation>/<uid>/...`` and ``.../manifests/...``.

    A sibling is on the same file system, so that a commit is a rename; and readers that walk the target never meet it.
    """

    target: Path

    @property
    def root(self) -> Path:
        return self.target.parent / f".{self.target.name}.cutwater"

    @property
    def manifests(self) -> Path:
        return self.root / "manifests"

    def folder(self, incarnation: str, uid: str) -> Path:
        return self.root / slug(incarnation) / slug(uid)

    def manifest(self, incarnation: str, uid: str, checkpoint: int) -> Path:
        return self.manifests / f"{self.manifest_prefix(incarnation, uid)}{checkpoint:010d}.json"

    def folded_manifest(self, incarnation: str, uid: str, first: int, last: int, level: int) -> Path:
        return self.manifests / f"{self.manifest_prefix(incarnation, uid)}{first:010d}-{last:010d}.{level}.json"

    def manifest_prefix(self, incarnation: str, uid: str) -> str:
        """A uid may begin with another one: what follows in a name decides whose it is."""
        return f"{slug(incarnation)}-{slug(uid)}-"

    def visible_behind(self, incarnation: str, uid: str, checkpoint: int, *, partitioned: bool) -> Path | None:
        """A file in the target that was prepared for a later checkpoint, if there is one. There may be very many to look at."""
        prefix = _final_prefix(incarnation, uid)
        folders = _folders_below(self.target) if partitioned else [(str(self.target), os.listdir(self.target))]
        for folder, names in folders:
            for name in names:
                rest = _FINAL_REST.fullmatch(name, len(prefix)) if name.startswith(prefix) else None
                if rest is not None and int(rest[1]) > checkpoint:
                    return Path(folder, name)
        return None

    def staged(self, incarnation: str, uid: str) -> Iterator[tuple[Path, StagedName]]:
        """What lies there now, by any attempt."""
        folder = self.folder(incarnation, uid)
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                name = StagedName.read(path.name)
                if name is not None:
                    yield path, name


def _folders_below(target: Path) -> Iterator[tuple[str, list[str]]]:
    return ((folder, names) for folder, _, names in os.walk(target))


def staged_name(ctx: SinkContext, transaction: str, index: int, stage: Stage) -> StagedName:
    """The transaction's own name may hold any character; its digest stands for it."""
    digest = hashlib.sha256(transaction.encode()).hexdigest()[:16]
    return StagedName(ctx.attempt, ctx.parallelism, ctx.subtask, digest, index, stage)


def final_name(ctx: SinkContext, checkpoint: int, index: int, extension: str) -> str:
    """Never the same for two transactions: checkpoint ids do not repeat within an incarnation."""
    return f"{_final_prefix(ctx.incarnation, ctx.uid)}{checkpoint:010d}-{ctx.subtask:05d}-{index:04d}{extension}"


def _final_prefix(incarnation: str, uid: str) -> str:
    """A uid may begin with another one: what follows in a name decides whose it is."""
    return f"part-{slug(incarnation)}-{slug(uid)}-"


_FINAL_REST: Final = re.compile(r"(\d{10,})-\d{5,}-\d{4,}\..+")


def checkpoint_of(final: str) -> int:
    """The checkpoint that a file was prepared for: all its rows come before that one's cut."""
    return int(PurePath(final).name.rsplit("-", 3)[1])


def slug(text: str) -> str:
    """A name that every file system takes; different texts stay different."""
    safe = re.sub(r"[^A-Za-z0-9_]+", "-", text).strip("-")[:60]
    return safe if safe == text else f"{safe}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def abandoned(ctx: SinkContext, path: Path, name: StagedName, listed: set[Path]) -> bool:
    """Whether the subtask of ``ctx`` may remove this file at its start.

    Only what an earlier attempt left. An open file is listed by no checkpoint; those of subtasks that exist no more are
    shared out. A ready one may be listed in the committables of another subtask when the parallelism changed, so it is
    judged here only if it did not; the others go once the next checkpoint was committed everywhere.
    """
    if name.attempt >= ctx.attempt or path in listed:
        return False
    if name.stage is Stage.OPEN:
        return name.subtask % ctx.parallelism == ctx.subtask
    return (name.parallelism, name.subtask) == (ctx.parallelism, ctx.subtask)


def of_another_run(ctx: SinkContext, name: StagedName) -> bool:
    """Whether a file that the subtask of ``ctx`` finds at its start cannot stem from the job as its storage knows it.

    No attempt is as new as this one, and in this one only other subtasks may have begun.
    """
    own = (name.parallelism, name.subtask) == (ctx.parallelism, ctx.subtask)
    return name.attempt > ctx.attempt or (name.attempt == ctx.attempt and own)
