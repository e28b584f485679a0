"""The folder of a running job is deleted and a second driver starts there: it is alone from then on (rule 29).

The lock of the first one is on a file that has no name any more, and both of them count attempts and checkpoints from 1.
"""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import cutwater as cw
from cutwater.checkpoint.attempt_log import AttemptLog
from cutwater.errors import CutwaterError
from tests.simulation.scene import Scene

RECORDS = 300


def start(folder: Path) -> Scene:
    return Scene(folder, lambda counts: counts.write(cw.parquet_sink(folder / "out"), uid="out"), RECORDS)


def written(folder: Path) -> Counter[tuple[int, int]]:
    """How often each (key, count) is visible."""
    return Counter(
        (row["k"], row["n"]) for file in (folder / "out").rglob("*.parquet") for row in pq.read_table(file).to_pylist()
    )


def assert_each_count_is_there_once(folder: Path) -> None:
    """Of what one driver alone would write: counts grow, and the last of each key is the whole."""
    found = written(folder)
    assert set(found.values()) == {1}
    assert {key: max(n for k, n in found if k == key) for key in range(3)} == dict.fromkeys(range(3), RECORDS // 3)


def run_until_told_off(scene: Scene) -> str:
    with pytest.raises(CutwaterError):
        scene.finish()
    cause = scene.simulation.driver.failure
    assert cause is not None
    assert cause.permanent, cause
    return cause.message


def before_anything(scene: Scene) -> None:
    scene.step_until(lambda: scene.simulation.driver.started)


def while_a_checkpoint_is_stored(scene: Scene) -> None:
    before_anything(scene)
    scene.trigger()
    scene.step_until(lambda: any((scene.checkpoints / "chk-1").glob("*.arrow")))
    assert not scene.has_metadata(1)


def before_its_commit_begins(scene: Scene) -> None:
    before_anything(scene)
    scene.trigger()
    scene.step_until(lambda: scene.has_metadata(1))
    assert not (scene.checkpoints / "commits").exists()


MOMENTS = [before_anything, while_a_checkpoint_is_stored, before_its_commit_begins]


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment.__name__)
def test_the_driver_whose_folder_was_deleted_publishes_and_commits_nothing_beside_the_next_one(
    tmp_path: Path, moment: Callable[[Scene], None]
) -> None:
    first = start(tmp_path)
    lock = first.store.lock()
    moment(first)
    shutil.rmtree(first.checkpoints)
    second = start(tmp_path)
    locks = [lock, second.store.lock()]  # on a new file, so that nobody refuses it
    before_anything(second)
    assert (second.store.record().attempt, first.store.record().attempt) == (1, 1)  # type: ignore[union-attr]
    assert "took over job 'job'" in run_until_told_off(first)
    second.trigger()
    second.finish()
    for each in locks:
        each.release()
    assert_each_count_is_there_once(tmp_path)


def test_without_a_look_at_whose_mark_it_is_both_of_them_write_all_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_number_only(self: AttemptLog) -> None:
        assert self._claimed is None or self.highest() == self._claimed

    monkeypatch.setattr(AttemptLog, "require_held", by_number_only)
    first = start(tmp_path)
    before_anything(first)
    shutil.rmtree(first.checkpoints)
    second = start(tmp_path)
    first.finish()
    second.finish()
    assert written(tmp_path)[(0, RECORDS // 3)] == 2


def test_nor_does_it_take_the_job_back_by_a_restart(tmp_path: Path) -> None:
    first = start(tmp_path)
    before_anything(first)
    shutil.rmtree(first.checkpoints)
    second = start(tmp_path)
    with pytest.raises(CutwaterError, match="took over job 'job'"):
        first.simulation.crash()
    second.finish()
    assert_each_count_is_there_once(tmp_path)


def test_what_it_had_to_delete_stays_as_it_may_be_the_next_ones(tmp_path: Path) -> None:
    first = start(tmp_path)
    before_anything(first)
    shutil.rmtree(first.checkpoints)
    second = start(tmp_path)
    second.trigger()
    second.step_until(lambda: second.has_metadata(1))
    with pytest.raises(CutwaterError, match="took over job 'job'"):
        first.store.delete_checkpoints([1])  # type: ignore[list-item]
    assert second.has_metadata(1)


def test_an_at_most_once_job_emits_nothing_more_beside_the_next_one(tmp_path: Path) -> None:
    def begin() -> Scene:
        return Scene(tmp_path, lambda counts: counts.collect("counts"), RECORDS, mode="at_most_once")

    first = begin()
    before_anything(first)
    shutil.rmtree(first.checkpoints)
    begin()
    read = first.records_in()
    assert "took over job 'job'" in run_until_told_off(first)
    assert first.records_in() == read


def test_a_folder_that_is_only_gone_may_come_back(tmp_path: Path) -> None:
    scene = start(tmp_path)
    before_anything(scene)
    scene.checkpoints.rename(tmp_path / "away")
    with pytest.raises(CutwaterError, match="is gone from"):
        scene.finish()
    cause = scene.simulation.driver.failure
    assert cause is not None
    assert not cause.permanent
    (tmp_path / "away").rename(scene.checkpoints)
    scene.simulation.crash()
    scene.finish()
    assert_each_count_is_there_once(tmp_path)
