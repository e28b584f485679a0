"""Manifests stay few, however many checkpoints are committed; and whatever is folded, nothing is ever unlisted."""

import itertools
import json
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cutwater.connectors import manifest, manifest_folding
from cutwater.connectors.disk import Disk
from cutwater.connectors.file_sink import parquet_sink
from cutwater.connectors.manifest import (
    committed_behind,
    committed_files,
    last_committed,
    manifests_of,
    was_committed,
)
from cutwater.connectors.manifest_folding import ManifestFolding
from cutwater.connectors.staging import Staging, checkpoint_of
from cutwater.errors import RestoreError
from tests.unit.checkpoint.crashing import fork
from tests.unit.connectors.file_job import DyingDisk
from tests.unit.connectors.test_file_sink import context


class QuickDisk(Disk):
    """Syncs nothing: no test here outlives its machine."""

    def sync_file(self, path: Path) -> None: ...

    def sync_folder(self, path: Path) -> None: ...


def part(checkpoint: int, uid: str = "out") -> str:
    return f"part-{uid}-{checkpoint:010d}-00000-0000"


class Sink:
    """One that commits a file with every checkpoint."""

    def __init__(self, target: Path, uid: str = "out", attempt: int = 1) -> None:
        self.staging = Staging(target)
        self.uid = uid
        self.attempt = attempt
        self.folding = ManifestFolding()

    def committable(self, checkpoint: int) -> Any:
        files = [{"final": part(checkpoint, self.uid), "staged": "gone", "rows": 1}]
        return {
            "incarnation": "inc", "uid": self.uid, "checkpoint": checkpoint, "attempt": self.attempt,
            "subtask": 0, "target": str(self.staging.target), "files": files,
        }  # fmt: skip

    def commit(self, checkpoints: range, disk: Disk | None = None) -> None:
        disk = disk or QuickDisk()
        for checkpoint in checkpoints:
            manifest.write_manifest(disk, self.staging, checkpoint, [self.committable(checkpoint)])
            self.folding.written(disk, self.staging, "inc", self.uid)

    def listed(self) -> list[int]:
        """The checkpoints whose file is listed, of this sink."""
        names = [Path(path).name.rsplit("-", 3) for path in committed_files(self.staging.target)]
        return sorted(int(checkpoint) for name, checkpoint, *_ in names if name == f"part-{self.uid}")

    def files(self) -> list[Path]:
        return sorted(self.staging.manifests.iterdir())


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path / "out")


@pytest.fixture
def three_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_folding, "FOLDED_AT_ONCE", 3)


def test_a_thousand_checkpoints_leave_few_manifests_that_list_all_files(sink: Sink) -> None:
    most = 0
    for hundred in range(10):
        sink.commit(range(100 * hundred, 100 * (hundred + 1)))
        most = max(most, len(sink.files()))
    assert most <= 2 * manifest_folding.FOLDED_AT_ONCE + 10
    assert sink.listed() == list(range(1000))
    assert last_committed(sink.staging, "inc", "out") == (999, 1)


def test_what_was_folded_is_folded_again_but_never_more_than_twice(sink: Sink, three_at_once: None) -> None:
    sink.commit(range(200))
    manifests = manifests_of(sink.staging, "inc", "out")
    assert max(each.level for each in manifests) == 2
    assert all(each.last - each.first < 9 for each in manifests)
    assert sum(each.level < 2 for each in manifests) <= 12
    assert sink.listed() == list(range(200))


def test_each_name_is_written_three_times_however_long_the_job_runs(sink: Sink, three_at_once: None) -> None:
    written = 0

    class Counting(QuickDisk):
        def write_new(self, path: Path, data: bytes) -> None:
            nonlocal written
            written += len(json.loads(data)["files"])
            super().write_new(path, data)

    for checkpoints in (90, 900):
        written = 0
        sink.commit(range(checkpoints), Counting())
        assert written <= 3 * checkpoints
        shutil.rmtree(sink.staging.root)


def test_a_killed_fold_leaves_everything_listed_and_is_done_again(sink: Sink, three_at_once: None) -> None:
    """Killed before each step of writing and folding: of one level and, at the ninth of them, of two."""
    for begin in (3, 9):
        for die_at in itertools.count():
            shutil.rmtree(sink.staging.root, ignore_errors=True)
            Sink(sink.staging.target).commit(range(begin))

            def act(_: Callable[[object], None], begin: int = begin, die_at: int = die_at) -> None:
                doomed = Sink(sink.staging.target)
                doomed.commit(range(begin, begin + 1), DyingDisk(die_at))

            code, _ = fork(act).wait()
            assert code in (0, -signal.SIGKILL)
            committed = sink.listed()
            assert committed[:begin] == list(range(begin)), f"step {die_at}"
            assert last_committed(sink.staging, "inc", "out") == (committed[-1], 1), f"step {die_at}"
            for each in committed:
                assert was_committed(sink.staging, sink.committable(each), part(each)), f"step {die_at}"
            Sink(sink.staging.target, attempt=2).commit(range(begin, begin + 30))
            assert sink.listed() == list(range(begin + 30)), f"step {die_at}"
            assert len(sink.files()) < 20
            assert {path.suffix for path in sink.files()} == {".json"}, f"step {die_at}"
            if code == 0:
                break
        assert die_at > 8, "hardly any step was seen"


def test_a_folder_that_was_never_folded_is_worked_off(
    sink: Sink, three_at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(manifest_folding, "MOST_FOLDS", 0)
        sink.commit(range(300))
    assert len(sink.files()) == 300
    Sink(sink.staging.target).commit(range(300, 320))
    assert len(sink.files()) < 60
    assert sink.listed() == list(range(320))


def test_a_checkpoint_that_is_confirmed_again_after_it_was_folded_stays_listed_with_what_it_adds(
    sink: Sink, three_at_once: None
) -> None:
    sink.commit(range(10))
    again = sink.committable(2)
    again["files"] = [{"final": part(77)}]
    manifest.write_manifest(QuickDisk(), sink.staging, 2, [again])
    sink.commit(range(10, 30))
    assert sink.listed() == [*range(30), 77]


def test_a_sink_whose_name_begins_like_another_ones_keeps_its_own_manifests(
    tmp_path: Path, three_at_once: None
) -> None:
    one, other = Sink(tmp_path / "out", "out"), Sink(tmp_path / "out", "out-0000000001")
    for checkpoint in range(40):
        one.commit(range(checkpoint, checkpoint + 1))
        other.commit(range(checkpoint, checkpoint + 1))
    for each in (one, other):
        assert each.listed() == list(range(40))
        assert last_committed(each.staging, "inc", each.uid) == (39, 1)
        for found in manifests_of(each.staging, "inc", each.uid):
            assert json.loads(found.path.read_bytes())["uid"] == each.uid


def test_a_listing_that_missed_what_was_folded_meanwhile_is_made_up_for(sink: Sink, three_at_once: None) -> None:
    """The worst that a file system may show: neither the manifests that went nor the one that they became."""
    sink.commit(range(3))
    before = sink.files()
    sink.commit(range(3, 4))
    (newest,) = [path for path in sink.files() if path.name.endswith("0000000003.json")]
    listings = [before, [newest], sink.files()]

    for first in listings:
        shown = iter([first])
        contents = manifest._contents(lambda: next(shown, sink.files()))  # noqa: B023  # used up before the next turn
        assert sorted({name for content in contents for name in content["files"]})[:3] == [part(0), part(1), part(2)]


def test_a_reader_never_misses_what_was_committed_before_it_looked(sink: Sink, three_at_once: None) -> None:
    committed, missed, stop = 0, list[tuple[int, int]](), threading.Event()

    def look() -> None:
        while not stop.is_set():
            at_least = committed
            seen = len(sink.listed())
            if seen < at_least:
                missed.append((at_least, seen))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for checkpoint in range(300):
            sink.commit(range(checkpoint, checkpoint + 1))
            committed = checkpoint + 1
    finally:
        stop.set()
        reader.join()
    assert missed == []


def test_an_old_manifest_that_cannot_be_read_keeps_nobody_from_committing(sink: Sink, three_at_once: None) -> None:
    sink.commit(range(2))
    sink.files()[0].write_bytes(b"{")
    sink.commit(range(2, 12))
    assert last_committed(sink.staging, "inc", "out") == (11, 1)


def test_a_storage_put_back_from_a_copy_is_refused_when_what_was_committed_since_is_folded(
    tmp_path: Path, three_at_once: None
) -> None:
    before = Sink(tmp_path / "out", attempt=7)
    before.staging.root.mkdir(parents=True)
    ctx = context(attempt=7)
    for checkpoint in range(20):
        committable = {**before.committable(checkpoint), "incarnation": ctx.incarnation}
        manifest.write_manifest(QuickDisk(), before.staging, checkpoint, [committable])
        before.folding.written(QuickDisk(), before.staging, ctx.incarnation, "out")
    sink = parquet_sink(tmp_path / "out")
    sink.open(ctx)
    with pytest.raises(RestoreError, match="checkpoint 19 was committed by attempt 7"):
        sink.recover([])


def test_what_was_committed_behind_a_checkpoint_is_found_whether_or_not_it_is_folded(
    sink: Sink, three_at_once: None
) -> None:
    sink.commit(range(1, 21))
    assert any(each.level for each in manifests_of(sink.staging, "inc", "out"))
    for checkpoint in range(20):
        found = committed_behind(sink.staging, "inc", "out", checkpoint)
        assert found is not None and checkpoint_of(found) > checkpoint
    assert committed_behind(sink.staging, "inc", "out", 20) is None
    assert committed_behind(sink.staging, "another", "out", 1) is None
