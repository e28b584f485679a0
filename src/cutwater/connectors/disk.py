"""The few things that output files need of a file system, each of which a crash may follow."""

import contextlib
import os
from pathlib import Path


class Disk:
    """Durable changes to local and mounted file systems. Tests put a disk in its place that dies at any step."""

    def create_folder(self, path: Path) -> None:
        """With its parents; each new name is durable when this returns."""
        if path.is_dir():
            return
        self.create_folder(path.parent)
        with contextlib.suppress(FileExistsError):
            path.mkdir()
        self.sync_folder(path.parent)

    def write_new(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)

    def sync_file(self, path: Path) -> None:
        _sync(path)

    def sync_folder(self, path: Path) -> None:
        _sync(path)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def remove(self, path: Path) -> None:
        """Nothing happens when it is already gone."""
        path.unlink(missing_ok=True)

    def remove_empty_folder(self, path: Path) -> None:
        """Nothing happens when something is in it."""
        with contextlib.suppress(OSError):
            path.rmdir()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
