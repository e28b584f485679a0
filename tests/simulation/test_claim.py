"""A checkpoint that is restored by its path, with and without ``claim``: whose files are whose, and how long (rule 38)."""

from dataclasses import replace
from pathlib import Path

import pytest

import cutwater as cw
from cutwater.checkpoint.completed import CompletedCheckpoint
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.start import Resume, choose_start
from cutwater.checkpoint.verification import open_checkpoint, verify
from tests.simulation.scene import Scene
from tests.simulation.test_retention import folders, take

MEMORY = cw.Memory(incremental=True)


def job(folder: Path, name: str, retain: int = 1, backend: cw.StateBackend = MEMORY) -> Scene:
    return Scene(folder, lambda counts: counts.write(cw.discard(), uid="out"), retain=retain, job=name, backend=backend)


def restored(
    folder: Path, name: str, path: Path, *, claim: bool, retain: int = 1, backend: cw.StateBackend = MEMORY
) -> Scene:
    scene = job(folder, name, retain, backend)
    go_on_from(scene, path, claim=claim)
    return scene


def go_on_from(scene: Scene, path: Path, *, claim: bool) -> None:
    start = choose_start(str(path), scene.store.facts(str(path), all_sinks_idempotent=True, on_damaged="fail"))
    assert isinstance(start, Resume)
    scene.simulation.start_attempt(replace(start, claim=claim))


def take_next(scene: Scene) -> CompletedCheckpoint:
    latest = scene.simulation.history.latest_completed or 0
    scene.trigger()
    scene.step_until(lambda: (scene.simulation.history.latest_completed or 0) > latest)
    scene.step_until(lambda: not scene.simulation._io.ready)
    return intact(scene)


def intact(scene: Scene) -> CompletedCheckpoint:
    *_, latest = scene.store.completed()
    verify(scene.store.storage, latest)
    return latest


def claimed(checkpoint: CompletedCheckpoint) -> set[str]:
    return {name for name in checkpoint.shared_files() if "+claimed+" in name}


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def began_with(tmp_path: Path, checkpoints: int = 2, retain: int = 1) -> tuple[Scene, Path]:
    """A job that ran, and its latest checkpoint, which is a base and changes."""
    one = job(tmp_path, "one", retain)
    for _ in range(checkpoints):
        latest = take_next(one)
    assert len(latest.shared_files()) == checkpoints
    one.simulation.driver.end("stopped")
    return one, one.checkpoints / f"chk-{latest.id}"


def test_without_claim_the_first_checkpoint_is_complete_in_itself_and_the_old_one_is_not_touched(
    tmp_path: Path,
) -> None:
    one, path = began_with(tmp_path)
    before = content(one.checkpoints)
    two = restored(tmp_path, "two", path, claim=False)
    first = take_next(two)
    assert [name.split("/")[0] for name in first.shared_files()] == ["two"]
    assert not claimed(first)
    for _ in range(3):
        take_next(two)
    assert content(one.checkpoints) == before


INCREMENTAL = pytest.mark.parametrize("backend", [MEMORY, cw.RocksDB(incremental=True)], ids=["memory", "rocksdb"])


@INCREMENTAL
def test_a_checkpoint_that_was_restored_by_its_path_is_never_touched_however_often_attempts_begin_anew(
    tmp_path: Path, backend: cw.StateBackend
) -> None:
    """Its files are those of checkpoints that went long ago."""
    one = job(tmp_path, "one", 3, backend)
    for _ in range(3):
        take_next(one)
    one.simulation.driver.end("stopped")
    path = one.checkpoints / "chk-2"
    again = job(tmp_path / "unused", "one", 2, backend)
    again.checkpoints, again.simulation.store = one.checkpoints, type(one.store)(one.store.storage, "one")
    again.store = again.simulation.store
    go_on_from(again, path, claim=False)
    for _ in range(3):
        for _ in range(3):
            take_next(again)
            verify(*open_checkpoint(str(path)))
        again.simulation.crash()
    assert 1 not in folders(again)


@INCREMENTAL
def test_what_was_built_on_a_damaged_checkpoint_stays_however_often_attempts_begin_anew(
    tmp_path: Path, backend: cw.StateBackend
) -> None:
    scene = job(tmp_path, "one", 2, backend)
    for checkpoint in (1, 2):
        take(scene, checkpoint)
    (scene.checkpoints / "chk-1" / "metadata.json").write_text("rubbish")
    for checkpoint in (3, 4, 5, 6):
        scene.simulation.crash()
        take(scene, checkpoint)
        intact(scene)
    assert 1 not in folders(scene)


def test_a_claimed_checkpoint_is_built_on_and_its_files_go_when_nobody_needs_them(tmp_path: Path) -> None:
    _, path = began_with(tmp_path)
    two = restored(tmp_path, "two", path, claim=True)
    first = take_next(two)
    assert len(claimed(first)) == 2
    assert len(first.shared_files()) == 3
    for _ in range(12):
        latest = take_next(two)
    assert not claimed(latest), "a new base was stored meanwhile"
    assert not [name for name in two.store.storage.list("two/shared/") if "+claimed+" in name]


def test_a_crash_before_the_first_checkpoint_goes_on_with_what_was_claimed_and_leaves_nothing_over(
    tmp_path: Path,
) -> None:
    _, path = began_with(tmp_path)
    two = restored(tmp_path, "two", path, claim=True)
    two.simulation.crash()
    links = [name for name in two.store.storage.list("two/shared/") if "+claimed+" in name]
    first = take_next(two)
    assert set(links) == claimed(first)


@pytest.fixture(params=[True, False], ids=["linked", "copied"])
def linked_or_copied(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How files that are claimed get their second names."""
    if not request.param:
        monkeypatch.setattr(FileStorage, "link", lambda self, existing, name: False)


@pytest.mark.usefixtures("linked_or_copied")
def test_a_claimed_checkpoint_that_is_gone_before_the_first_of_the_jobs_own_is_restored_all_the_same(
    tmp_path: Path,
) -> None:
    one, path = began_with(tmp_path)
    two = restored(tmp_path, "two", path, claim=True, retain=2)
    one.simulation.start_attempt()
    take_next(one)
    take_next(one)
    assert not path.exists(), "its owner has newer ones"
    for _ in range(2):
        two.simulation.crash()
    assert len(claimed(take_next(two))) == 2
    take_next(two)
    assert list(two.store.storage.list("two/shared/1+metadata.json")), "not more own ones than are retained"
    take_next(two)
    assert not list(two.store.storage.list("two/shared/1+metadata.json"))
    two.simulation.crash()
    take_next(two)


def test_what_was_claimed_and_is_damaged_is_claimed_again(tmp_path: Path) -> None:
    _, path = began_with(tmp_path)
    two = restored(tmp_path, "two", path, claim=True)
    two.store.storage.put("two/shared/1+metadata.json", b"torn")
    two.simulation.crash()
    assert {name.split("+")[0] for name in claimed(take_next(two))} == {"two/shared/2"}
    two.simulation.crash()
    assert not list(two.store.storage.list("two/shared/1+"))


@pytest.mark.usefixtures("linked_or_copied")
def test_two_jobs_that_claim_the_same_checkpoint_and_its_owner_take_nothing_from_each_other(tmp_path: Path) -> None:
    one, path = began_with(tmp_path)
    two, three = (restored(tmp_path, name, path, claim=True) for name in ("two", "three"))
    take_next(two)
    assert len(claimed(take_next(three))) == 2
    for _ in range(12):  # until none of two's checkpoints references what it claimed
        take_next(two)
    assert len(claimed(intact(three))) == 2
    assert path.exists(), "its owner may still go on from it"
    one.simulation.start_attempt()
    take_next(one)
    take_next(one)
    assert not path.exists()
    assert len(claimed(intact(three))) == 2
    three.simulation.crash()
    take_next(three)


def test_jobs_that_share_the_files_of_a_claimed_database_take_nothing_from_each_other(tmp_path: Path) -> None:
    backend = cw.RocksDB(incremental=True, local_directories=[str(tmp_path)])
    one = job(tmp_path, "one", backend=backend)
    path = one.checkpoints / f"chk-{take_next(one).id}"
    one.simulation.driver.end("stopped")
    two, three = (restored(tmp_path, name, path, claim=True, backend=backend) for name in ("two", "three"))
    theirs = [claimed(take_next(each)) for each in (two, three)]
    assert all(theirs)
    for _ in range(4):
        take_next(two)
    assert claimed(intact(three)) == theirs[1]
    one.simulation.start_attempt()
    take_next(one)
    take_next(one)
    assert not path.exists()
    assert claimed(intact(three)) == theirs[1]
    for each in (one, two, three):
        each.simulation.crash()
        take_next(each)


def test_a_claimed_checkpoint_that_its_owner_gave_up_is_deleted_when_there_are_enough_new_ones(tmp_path: Path) -> None:
    _, path = began_with(tmp_path)
    one = job(tmp_path, "one")  # its owner begins anew, and archives what was before
    kept = take_next(one)
    one.simulation.driver.end("stopped")
    two = restored(tmp_path, "two", path, claim=True, retain=2)
    for _ in range(2):
        take_next(two)
        assert path.exists()
    take_next(two)
    assert not path.exists()
    assert set(one.store.storage.list("one/shared/")) == kept.shared_files()
    intact(one)


@pytest.mark.parametrize("owner_claims", [False, True])
def test_a_claimed_checkpoint_that_its_owner_was_restored_from_by_path_stays(
    tmp_path: Path, owner_claims: bool
) -> None:
    """With no checkpoint of its own since, its owner has nothing else to start from."""
    one, path = began_with(tmp_path)
    go_on_from(one, path, claim=owner_claims)
    one.simulation.driver.end("failed")
    two = restored(tmp_path, "two", path, claim=True)
    for _ in range(3):
        take_next(two)
    assert path.exists()
    one.simulation.start_attempt()
    take_next(one)


def test_a_claimed_checkpoint_of_a_job_that_runs_stays(tmp_path: Path) -> None:
    _, path = began_with(tmp_path)
    one = job(tmp_path, "one")
    with one.store.lock():
        two = restored(tmp_path, "two", path, claim=True)
        for _ in range(3):
            take_next(two)
        assert path.exists()


def test_a_job_claims_an_older_checkpoint_of_its_own(tmp_path: Path) -> None:
    one, _ = began_with(tmp_path, checkpoints=3, retain=2)
    again = job(tmp_path / "unused", "one", retain=2)
    again.checkpoints, again.simulation.store = one.checkpoints, type(one.store)(one.store.storage, "one")
    again.store = again.simulation.store
    go_on_from(again, one.checkpoints / "chk-2", claim=True)
    assert len(claimed(take_next(again))) == 2
    assert folders(again)[:2] == [2, 3]
    take_next(again)
    assert 2 not in folders(again)
    assert 3 not in folders(again)
    intact(again)
