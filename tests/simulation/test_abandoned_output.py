"""What a killed run staged goes when the job starts anew, unless a checkpoint lists it."""

import signal
import subprocess
import sys
from pathlib import Path

import cutwater as cw
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.start import Resume, choose_start
from cutwater.connectors.manifest import committed_files
from tests.simulation.killed import staged
from tests.simulation.scene import Scene


def kill_when(folder: Path, moment: str) -> list[Path]:
    """What the run had staged when it was killed."""
    child = subprocess.run(
        [sys.executable, "-m", "tests.simulation.killed", str(folder), moment], check=False, timeout=120
    )
    assert child.returncode == -signal.SIGKILL
    return staged(folder)


def start_anew(folder: Path) -> Scene:
    scene = Scene(folder, lambda counts: counts.write(cw.parquet_sink(folder / "out"), uid="out"), 1000)
    scene.step_until(lambda: scene.simulation.driver.started and not scene.simulation._io.ready)
    return scene


def test_what_a_killed_run_staged_and_no_checkpoint_lists_is_removed_when_the_job_starts_anew(tmp_path: Path) -> None:
    left = kill_when(tmp_path, "prepared")
    assert {path.suffix for path in left} == {".ready", ".open"}
    scene = start_anew(tmp_path)
    assert not set(left) & set(staged(tmp_path))
    assert not left[0].parent.parent.exists()
    scene.step_until(lambda: scene.simulation.finished)
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 2
    assert len(committed_files(tmp_path / "out")) == 2


def test_what_an_archived_checkpoint_lists_stays_and_is_committed_by_whoever_restores_it(tmp_path: Path) -> None:
    left = kill_when(tmp_path, "published")
    listed = [path for path in left if path.suffix == ".ready"]
    assert len(listed) == 1
    for _ in range(2):
        start_anew(tmp_path)
        assert set(left) & set(staged(tmp_path)) == set(listed)
    path = str(tmp_path / "checkpoints" / "job" / "chk-2")
    store = JobStore(FileStorage(str(tmp_path / "checkpoints")), "job")
    start = choose_start(path, store.facts(path, all_sinks_idempotent=False, on_damaged="fail"))
    assert isinstance(start, Resume)
    scene = start_anew(tmp_path)
    scene.simulation.start_attempt(start)
    scene.step_until(lambda: scene.simulation.finished)
    assert not listed[0].exists()
    assert (
        len(committed_files(tmp_path / "out")) == 3
    )  # of checkpoints 1 and 2 of the killed run, and what follows them


def test_while_a_checkpoint_cannot_be_read_nobody_knows_what_it_lists_and_nothing_is_removed(tmp_path: Path) -> None:
    left = kill_when(tmp_path, "published")
    metadata = tmp_path / "checkpoints" / "job" / "chk-2" / "metadata.json"
    intact = metadata.read_bytes()
    metadata.write_bytes(b"damaged")
    start_anew(tmp_path)
    assert set(left) <= set(staged(tmp_path))
    metadata.write_bytes(intact)
    start_anew(tmp_path)
    assert set(left) & set(staged(tmp_path)) == {path for path in left if path.suffix == ".ready"}
