"""A reader that knows nothing of checkpoints: it globs the output folder all the while and believes what it sees."""

import glob
import hashlib
import threading
from pathlib import Path

import polars as pl

LOOK_SECONDS = 0.05


class NaiveReader(threading.Thread):
    """Reads every file as soon as it is there. ``complaints``: what no reader may ever see."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="naive-reader", daemon=True)
        self.folder = folder
        self.complaints: list[str] = []
        self.seen: dict[str, str] = {}
        self.looks = 0
        self._last: dict[int, int] = {}
        self._stop_asked = threading.Event()

    @property
    def records(self) -> int:
        """How many input records the output seen so far accounts for."""
        return sum(dict(self._last).values())

    def run(self) -> None:
        while not self._stop_asked.is_set():
            self.look()
            self._stop_asked.wait(LOOK_SECONDS)
        self.look()

    def look(self) -> None:
        self.looks += 1
        # Not pathlib's, which takes twice the CPU: with thousands of files it is felt by the job, which has to recover.
        there = set(glob.glob(f"{self.folder}/**/*.parquet", recursive=True))
        for gone in self.seen.keys() - there:
            self._complain(f"{gone} was there and vanished")
        for name in sorted(there - self.seen.keys()):
            path = Path(name)
            try:
                self.seen[name] = hashlib.sha256(path.read_bytes()).hexdigest()
                for key, last in pl.read_parquet(path).group_by("k").agg(pl.col("n").max()).rows():
                    self._last[key] = max(self._last.get(key, 0), last)
            except Exception as error:
                self._complain(f"{path.name} could not be read: {type(error).__name__}: {error}")

    def finish(self) -> None:
        """Look once more, then check that every file is still what it was when first seen."""
        self._stop_asked.set()
        self.join()
        for path, digest in ((Path(name), digest) for name, digest in self.seen.items()):
            if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                self._complain(f"{path.name} was changed after it had been seen")

    def _complain(self, complaint: str) -> None:
        if complaint not in self.complaints:
            self.complaints.append(complaint)


def in_commit_order(folder: Path) -> pl.DataFrame:
    """All rows, by checkpoint id (it stands in the file's name), subtask, and position in the file."""
    frames = []
    for path in folder.rglob("*.parquet"):
        checkpoint, subtask = (int(part) for part in path.stem.split("-")[-3:-1])
        frames.append(pl.read_parquet(path).with_columns(checkpoint=checkpoint, subtask=subtask).with_row_index("row"))
    return pl.concat(frames).sort("checkpoint", "subtask", "row")


def broken_links(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows, in commit order, that do not follow from the one before of the same key."""
    before = rows.with_columns(
        previous_link=pl.col("link").shift(1, fill_value=0).over("k"),
        previous_n=pl.col("n").shift(1, fill_value=0).over("k"),
    )
    follows = (pl.col("link") == pl.col("previous_link") + 1) & (pl.col("before") == pl.col("previous_n"))
    return before.filter(~follows | (pl.col("n") <= pl.col("before")))
