"""Which checkpoints stay in the storage after damage, after a restore from a path, and after an answer that nobody heard."""

from pathlib import Path

import cutwater as cw
from cutwater.checkpoint.start import Resume, choose_start
from tests.simulation.scene import Scene


def discarding(folder: Path, retain: int) -> Scene:
    return Scene(folder, lambda counts: counts.write(cw.discard(), uid="out"), retain=retain)


def take(scene: Scene, checkpoint: int) -> None:
    """Until it is completed, and what it retired is deleted."""
    scene.trigger()
    scene.step_until(lambda: scene.simulation.history.latest_completed == checkpoint)
    scene.step_until(lambda: not scene.simulation._io.ready)


def folders(scene: Scene) -> list[int]:
    return sorted(int(path.name.removeprefix("chk-")) for path in scene.checkpoints.glob("chk-*"))


def test_a_damaged_checkpoint_takes_no_good_ones_place_and_goes_with_those_older_than_the_retained(
    tmp_path: Path,
) -> None:
    scene = discarding(tmp_path, retain=2)
    for checkpoint in (1, 2, 3):
        take(scene, checkpoint)
    assert folders(scene) == [2, 3]
    scene.damage(3)
    scene.simulation.crash()
    take(scene, 4)
    assert folders(scene) == [2, 3, 4]
    take(scene, 5)
    assert folders(scene) == [4, 5]


def test_checkpoints_that_a_restored_path_made_void_go_and_the_restored_one_stays(tmp_path: Path) -> None:
    scene = discarding(tmp_path, retain=3)
    for checkpoint in (1, 2, 3):
        take(scene, checkpoint)
    path = str(scene.checkpoints / "chk-2")
    start = choose_start(path, scene.store.facts(path, all_sinks_idempotent=True, on_damaged="fail"))
    assert isinstance(start, Resume)
    again = discarding(tmp_path / "unused", retain=3)
    again.checkpoints, again.simulation.store = scene.checkpoints, type(scene.store)(scene.store.storage, "job")
    again.simulation.start_attempt(start)
    for checkpoint in (4, 5):
        take(again, checkpoint)
        assert folders(again) == [1, 2, 3, *range(4, checkpoint + 1)]
    take(again, 6)
    assert folders(again) == [2, 4, 5, 6]
    again.simulation.crash()
    for checkpoint in (7, 8):
        take(again, checkpoint)
    assert folders(again) == [2, 6, 7, 8]


def test_a_checkpoint_whose_publication_nobody_heard_of_is_retained_and_deleted_like_another(tmp_path: Path) -> None:
    scene = discarding(tmp_path, retain=1)
    take(scene, 1)
    scene.trigger()
    scene.step_until(lambda: scene.has_metadata(2))
    scene.simulation.crash()  # with the driver's answer still on its way
    assert scene.simulation.history.retained == (1, 2)
    take(scene, 3)
    assert folders(scene) == [3]
