"""What a failure leaves of the output: each row shown once, listed where readers look, and never written a second time."""

import errno
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cutwater as cw
from cutwater.checkpoint.damage import FallBack, RefuseRestore
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_store import JobStore, Restored
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.statistics import CheckpointHistory, CheckpointStatus
from cutwater.connectors.file_sink import FileSink
from cutwater.connectors.manifest import committed_files
from cutwater.errors import CutwaterError, StorageError
from cutwater.flow.ids import CheckpointId, SubtaskId
from cutwater.subtask.chain import OperatorFailure
from cutwater.subtask.setup import TableWriter
from cutwater.testing.clock import ManualClock
from cutwater.testing.simulation import Simulation
from tests.simulation.scene import Scene


def assert_nothing_older_is_restored(scene: Scene) -> None:
    again = JobStore(scene.store.storage, "job")
    found = again.find_restorable(all_sinks_idempotent=False, on_damaged="fail")
    assert isinstance(found, RefuseRestore), found


def test_output_that_a_restart_committed_is_never_fallen_behind(tmp_path: Path) -> None:
    scene = Scene(tmp_path, lambda counts: counts.write(cw.parquet_sink(tmp_path / "out"), uid="out"))
    scene.trigger()
    scene.step_until(lambda: scene.has_metadata(1))
    scene.trigger()
    scene.step_until(lambda: scene.has_metadata(2))
    scene.simulation.crash()
    scene.damage(2)
    assert_nothing_older_is_restored(scene)


def test_collected_rows_that_the_driver_was_shown_are_never_fallen_behind(tmp_path: Path) -> None:
    scene = Scene(tmp_path, lambda counts: counts.collect("counts"))
    scene.trigger()
    scene.step_until(lambda: scene.has_metadata(1))
    scene.trigger()
    scene.step_until(lambda: len(list((scene.checkpoints / "collected").rglob("*.arrow"))) == 2)
    scene.damage(2)
    assert_nothing_older_is_restored(scene)


@pytest.mark.parametrize("seed", range(5))
def test_without_checkpoints_a_restart_collects_anew_and_shows_only_what_the_last_attempt_collected(seed: int) -> None:
    env = cw.Environment(parallelism=2, checkpointing=None)
    numbers = env.read(cw.sequence(400), uid="numbers").with_columns(k=pl.col("value") % 7)
    numbers.key_by("k").agg(n=cw.count()).uid("counts").collect("counts")
    store = JobStore(MemoryStorage(), "job")
    definition = env.define("job", 2)
    simulation = Simulation(definition, store, ManualClock(), random.Random(seed).randrange)
    uid = definition.collected["counts"].uid
    crashed = False
    while not simulation.finished:
        if not simulation.step():
            assert simulation.advance_to_next_timer()
        if not crashed and len(store.collected.read(uid)) == 1:
            crashed = True
            simulation.crash()
            assert store.collected.read(uid) == []
    assert crashed
    simulation.run_until_idle()
    assert len(store.collected.read(uid)) == 2


class FirstIsNotStored(Simulation):
    """The state of checkpoint 1 cannot be written."""

    def _writer(self, subtask: SubtaskId) -> TableWriter:
        written = super()._writer(subtask)

        class Failing:
            def write(self, checkpoint: CheckpointId, uid: str, table: Any, base: Any) -> Any:
                if checkpoint == 1:
                    raise StorageError("no room for checkpoint 1")
                return written.write(checkpoint, uid, table, base)

        return Failing()


def visible(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.glob("*.parquet"))


def assert_all_are_listed(folder: Path, files: int) -> None:
    assert len(visible(folder)) == files
    assert visible(folder) == committed_files(folder)


def files_scene(out: Path, kind: type[Simulation] = Simulation) -> Scene:
    """Counts of 1000 records in ``out``."""
    return Scene(out.parent, lambda counts: counts.write(cw.parquet_sink(out), uid="out"), 1000, kind)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def scene(out: Path) -> Scene:
    return files_scene(out)


def test_files_that_a_failed_checkpoint_prepared_are_in_the_manifest_of_the_next(out: Path) -> None:
    scene = files_scene(out, FirstIsNotStored)
    scene.trigger()
    scene.step_until(lambda: scene.simulation.history.counts[CheckpointStatus.FAILED] == 1)
    scene.finish()
    assert_all_are_listed(out, 2)


def test_files_that_a_restart_committed_are_in_the_manifest_of_the_restored_checkpoint(scene: Scene, out: Path) -> None:
    scene.trigger()
    scene.step_until(lambda: scene.has_metadata(1))
    scene.simulation.crash()
    scene.finish()
    assert_all_are_listed(out, 2)


def test_files_of_a_checkpoint_whose_confirmation_died_with_the_driver_are_in_a_manifest(
    scene: Scene, out: Path
) -> None:
    scene.trigger()
    scene.step_until(lambda: len(visible(out)) == 1)
    scene.withheld = "Committed"
    scene.trigger()
    scene.step_until(lambda: scene.has_metadata(2))
    assert committed_files(out) == []
    scene.withheld = None
    scene.simulation.crash()
    scene.finish()
    assert_all_are_listed(out, 3)


@pytest.mark.parametrize("restarted", [True, False], ids=["after a restart", "in the same attempt"])
def test_output_that_went_on_since_the_storage_was_copied_is_not_written_again_when_the_copy_is_put_back(
    scene: Scene, out: Path, tmp_path: Path, restarted: bool
) -> None:
    scene.trigger()
    scene.step_until(lambda: len(committed_files(out)) == 1)
    shutil.copytree(scene.checkpoints, tmp_path / "copy")
    if restarted:
        scene.simulation.crash()
    scene.trigger()
    scene.step_until(lambda: len(committed_files(out)) == 2)
    shown = {path: Path(path).read_bytes() for path in visible(out)}
    shutil.rmtree(scene.checkpoints)
    shutil.copytree(tmp_path / "copy", scene.checkpoints)
    scene.simulation.store = JobStore(FileStorage(str(scene.checkpoints.parent)), "job")
    scene.simulation.history = CheckpointHistory()
    with pytest.raises((OperatorFailure, CutwaterError), match="copy of the storage put back"):
        scene.simulation.crash()
        scene.finish()
    assert {path: Path(path).read_bytes() for path in visible(out)} == shown


def sparse_scene(out: Path, kind: type[Simulation] = Simulation) -> Scene:
    """One row of 800 is written, so that few checkpoints have output; the row 600 is, with checkpoint 2. The rate is that of a real
    clock: a machine that stands still for a moment brings many at once."""

    def build(env: cw.Environment) -> None:
        numbers = env.read(cw.sequence(2000, rate=1000), uid="numbers")
        numbers.filter(pl.col("value") % 800 == 600).write(cw.parquet_sink(out), uid="out")

    scene = Scene(out.parent, build=build, kind=kind)
    scene.trigger()
    scene.step_until(lambda: scene.has_metadata(1))
    assert scene.records_in() < 600
    shutil.copytree(scene.checkpoints, out.parent / "copy")
    scene.step_until(lambda: scene.records_in() > 800)
    scene.trigger()
    scene.step_until(lambda: len(committed_files(out)) == 1)
    return scene


def go_on(scene: Scene) -> None:
    """From a storage that somebody had his hands in. Checkpoint 2 comes again, and before there is output for it."""
    scene.simulation.store = JobStore(FileStorage(str(scene.checkpoints.parent)), "job")
    scene.simulation.history = CheckpointHistory()
    scene.simulation.crash()
    scene.trigger()
    scene.finish()


def shown_rows(out: Path) -> list[int]:
    return sorted(row for path in visible(out) for row in pl.read_parquet(path)["value"])


@pytest.mark.parametrize(
    ("how", "lost"),
    [
        ("a copy is put back", []),
        ("the newest and all notes of commits are deleted", ["chk-2", "commits"]),
        (
            "all checkpoints and notes of them are deleted",
            ["chk-1", "chk-2", "commits", "attempts/00000001.completed.json"],
        ),
    ],
)
def test_sparse_output_is_not_written_again_in_silence_when_the_storage_went_back_within_an_attempt(
    out: Path, how: str, lost: list[str]
) -> None:
    scene = sparse_scene(out)
    for name in lost:
        path = scene.checkpoints / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not lost:
        shutil.rmtree(scene.checkpoints)
        shutil.copytree(out.parent / "copy", scene.checkpoints)
    with pytest.raises((OperatorFailure, CutwaterError), match="was committed with checkpoint 2, which the checkpoint"):
        go_on(scene)
    assert shown_rows(out) == [600]


class FallsBack(Simulation):
    """With ``on_damaged="fallback"``."""

    def _begin_restore(self) -> Restored:
        found = self.store.find_restorable(all_sinks_idempotent=False, on_damaged="fallback")
        assert isinstance(found, FallBack)
        return self.store.begin_restore(found.to)


@pytest.mark.parametrize("how", ["deleted", "damaged"])
def test_a_user_who_accepts_rows_twice_for_a_lost_checkpoint_gets_them(out: Path, how: str) -> None:
    scene = sparse_scene(out, FallsBack)
    if how == "deleted":
        shutil.rmtree(scene.checkpoints / "chk-2")
    else:
        scene.damage(2)
    go_on(scene)
    assert shown_rows(out) == [600, 600, 1400]


class Manifests:
    """Lets calls of ``committed_everywhere`` fail, as a full disk would; writes down which checkpoints got through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failing = 0
        self.written: list[int] = []
        write = FileSink.committed_everywhere

        def committed_everywhere(sink: FileSink, checkpoint_id: int, committables: Sequence[Any]) -> None:
            if self.failing:
                self.failing -= 1
                raise OSError(errno.ENOSPC, "No space left on device")
            write(sink, checkpoint_id, committables)
            self.written.append(checkpoint_id)

        monkeypatch.setattr(FileSink, "committed_everywhere", committed_everywhere)


@pytest.fixture
def manifests(monkeypatch: pytest.MonkeyPatch) -> Manifests:
    return Manifests(monkeypatch)


def test_a_manifest_that_could_not_be_written_is_written_with_the_next_checkpoint_and_before_its_own(
    scene: Scene, out: Path, manifests: Manifests
) -> None:
    manifests.failing = 1
    scene.trigger()
    scene.step_until(lambda: manifests.failing == 0)
    assert committed_files(out) == []
    scene.trigger()
    scene.step_until(lambda: manifests.written == [1, 2])
    assert_all_are_listed(out, 2)
    assert any("checkpoint 1" in line and "No space left" in line for line in scene.simulation.logged)


def test_the_last_manifest_is_tried_again_before_the_job_ends(scene: Scene, out: Path, manifests: Manifests) -> None:
    manifests.failing = 1
    scene.step_until(lambda: scene.simulation.finished)
    assert_all_are_listed(out, 1)


def test_a_job_whose_manifests_cannot_be_written_does_not_finish_as_if_they_were(
    scene: Scene, out: Path, manifests: Manifests
) -> None:
    manifests.failing = 1000
    with pytest.raises(CutwaterError, match=r"'out'.*checkpoint 1.*No space left on device"):
        scene.step_until(lambda: scene.simulation.finished)
    assert not scene.simulation.driver.finishing
    manifests.failing = 0
    scene.simulation.crash()
    scene.step_until(lambda: scene.simulation.finished)
    assert_all_are_listed(out, 1)


def test_files_whose_manifest_failed_until_the_crash_are_in_a_manifest_after_it(
    scene: Scene, out: Path, manifests: Manifests
) -> None:
    manifests.failing = 1000
    scene.trigger()
    scene.step_until(lambda: manifests.failing < 1000)
    scene.trigger()
    scene.step_until(lambda: len(visible(out)) == 2)
    scene.simulation.crash()
    tried = manifests.failing
    scene.step_until(lambda: manifests.failing < tried)
    scene.trigger()
    scene.step_until(lambda: scene.has_metadata(3))
    scene.simulation.crash()
    manifests.failing = 0
    scene.step_until(lambda: scene.simulation.finished)
    assert_all_are_listed(out, 4)
