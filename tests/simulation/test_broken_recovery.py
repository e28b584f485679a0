"""Rules that no random schedule breaks by itself, each broken on purpose in a scene that is made for it (r10, r17, r21, r28, r31).

Every scene is played twice: as it is, and with its rule taken away, which must show.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cutwater as cw
from cutwater.checkpoint import commands as do
from cutwater.checkpoint import job_store, ledger
from cutwater.checkpoint.damage import FallBack
from cutwater.checkpoint.events import ManualTriggerRequested, RequestId
from cutwater.control.messages import SlowLoop
from cutwater.errors import CutwaterError, JobFailed
from cutwater.job.attempt import AttemptDriver, RootCause
from cutwater.subtask.operator_subtask import OperatorSubtask
from cutwater.testing.run import _rows as decoded
from tests.simulation.scene import Scene
from tests.simulation.variants import Patch
from tests.simulation.world import Setting, World

# --- r10: a loop that is merely slow is told, and never killed --------------------------------------------------------


def finish_though_one_is_slow(folder: Path) -> list[str]:
    scene = Scene(folder, lambda counts: counts.collect("counts"), 300)
    scene.step_until(lambda: scene.records_in() > 0)
    subtask = next(iter(scene.simulation.subtasks))
    scene.simulation.driver.on_message(subtask, SlowLoop(60.0, 'File "mine.py", line 3'))
    scene.finish()
    return scene.simulation.logged


def test_a_loop_that_is_slow_is_told_with_its_stack_and_goes_on(tmp_path: Path) -> None:
    (told,) = [line for line in finish_though_one_is_slow(tmp_path) if "one call for 60 s" in line]
    assert 'File "mine.py", line 3' in told


def test_rule_10_broken_a_slow_loop_that_ends_the_attempt_is_caught(tmp_path: Path, monkeypatch: Patch) -> None:
    real = AttemptDriver.on_message

    def on_message(self: AttemptDriver, subtask: Any, message: Any) -> None:
        real(self, subtask, message)
        if isinstance(message, SlowLoop):
            self.fail(RootCause("too slow"))

    monkeypatch.setattr(AttemptDriver, "on_message", on_message)
    with pytest.raises(CutwaterError, match="too slow"):
        finish_though_one_is_slow(tmp_path)


# --- r17: when the alignment has run out of time, everybody cuts ------------------------------------------------------


class Jam(World):
    """Operators work only when nothing else can happen, and then one step of one of them: whatever is sent to them waits."""

    turns = 0

    def operators(self) -> dict[str, OperatorSubtask]:
        return {str(name): each for name, each in self.subtasks.items() if isinstance(each, OperatorSubtask)}

    def run_the_rest(self) -> None:
        """Until only operators could do something."""
        while rest := self._possible(by_operators=False):
            self.perform(rest[0])

    def let_one_operator_work(self) -> None:
        loops = self._possible(by_operators=True)
        self.turns += 1
        self.perform(loops[self.turns % len(loops)])

    def _possible(self, *, by_operators: bool) -> list[Any]:
        operators = self.operators()
        return [each for each in self.actions() if (each.kind == "loop" and each.actor in operators) == by_operators]

    def taken_in(self) -> int:
        return sum(each.records_in for each in self.operators().values())


def records_until_it_completes() -> int:
    """How many records operators take in between the moment at which the alignment runs out of time and the completion of
    the checkpoint, in a pipeline where rows wait wherever they can."""
    setting = Setting(
        "two keyed steps", 5, rows=60, crashes=0, unaligned=True, aligned_timeout="10ms", timeout="1h", interval="1h"
    )  # fmt: skip
    world = Jam(setting)
    for _ in range(60):
        world.run_the_rest()
        world.let_one_operator_work()
    world.driver.handle(ManualTriggerRequested(RequestId(1)))
    world.run_the_rest()
    world.time.advance(0.011)
    world.run_the_rest()
    assert world.pending, "the jam held it up"
    before = world.taken_in()
    while not world.ended:
        world.let_one_operator_work()
        world.run_the_rest()
    assert world.ended[0].status.value == "completed"
    return world.taken_in() - before


class TellingFewer:
    """The coordinator's commands, of which one goes to ``few(to)`` only."""

    def __init__(self, few: Callable[[Any], Any]) -> None:
        self.SendCutNow = lambda checkpoint, at, to: do.SendCutNow(checkpoint, at, few(to))

    def __getattr__(self, name: str) -> Any:
        return getattr(do, name)


def _nobody_is_told(patch: Patch) -> None:
    patch.setattr(ledger, "do", TellingFewer(lambda to: ()))


def _only_the_last_is_told(patch: Patch) -> None:
    patch.setattr(ledger, "do", TellingFewer(lambda to: to[-1:]))


@pytest.mark.parametrize("break_it", [_nobody_is_told, _only_the_last_is_told], ids=lambda each: each.__name__[1:])
def test_rule_17_broken_an_alignment_that_not_everybody_leaves_is_caught(
    break_it: Callable[[Patch], None], monkeypatch: Patch
) -> None:
    with_the_rule = records_until_it_completes()
    break_it(monkeypatch)
    assert records_until_it_completes() > with_the_rule, (
        "nothing here is left to chance: 5 with the rule, 8 and 31 without"
    )


# --- r21: without drain no window fires -------------------------------------------------------------------------------


def windows_after_stop(folder: Path, *, drain: bool) -> list[Any]:
    def build(env: cw.Environment) -> None:
        numbers = env.read(cw.sequence(40_000, rate=1000), uid="numbers").with_columns(
            k=pl.col("value") % 3, ts=pl.col("value")
        )
        timed = numbers.with_timestamps("ts", out_of_orderness="1ms")
        timed.key_by("k").window(cw.tumbling("1h")).agg(n=cw.count()).uid("windows").collect("windows")

    scene = Scene(folder, build=build)
    scene.step_until(lambda: scene.records_in() > 100)
    scene.simulation.driver._execute(do.StopSources(drain))
    scene.finish()
    return decoded(scene.store.collected.read("collect-windows"))


def test_a_stop_fires_open_windows_only_if_they_are_to_be_drained(tmp_path: Path) -> None:
    assert windows_after_stop(tmp_path / "without", drain=False) == []
    assert len(windows_after_stop(tmp_path / "with", drain=True)) == 3


def test_rule_21_broken_an_end_that_always_drains_is_caught(tmp_path: Path, monkeypatch: Patch) -> None:
    real = OperatorSubtask._end
    monkeypatch.setattr(OperatorSubtask, "_end", lambda self, *, drain: real(self, drain=True))
    assert len(windows_after_stop(tmp_path, drain=False)) == 3


# --- r28: subsuming keeps at least the latest -------------------------------------------------------------------------


EACH_ONCE = list(range(1_000))


def numbers_into(write: Callable[[cw.Stream], object]) -> Callable[[cw.Environment], object]:
    return lambda env: write(env.read(cw.sequence(len(EACH_ONCE), rate=1000), uid="numbers"))


def numbers_after_a_crash(folder: Path) -> list[int]:
    scene = Scene(folder, build=numbers_into(lambda numbers: numbers.collect("all")), retain=1)
    for checkpoint in (1, 2):
        scene.trigger()
        scene.step_until(lambda: scene.simulation.history.latest_completed == checkpoint)  # noqa: B023  # awaited at once
        scene.step_until(lambda: not scene.simulation._io.ready)
    scene.simulation.crash()
    scene.finish()
    return sorted(row.value for row in decoded(scene.store.collected.read("collect-all")))


def test_the_latest_checkpoint_stays_and_is_gone_back_to(tmp_path: Path) -> None:
    assert numbers_after_a_crash(tmp_path) == EACH_ONCE


def test_rule_28_broken_a_latest_checkpoint_that_is_deleted_is_caught(tmp_path: Path, monkeypatch: Patch) -> None:
    real = job_store.JobStore.delete_checkpoints

    def delete(self: job_store.JobStore, checkpoints: Any, **more: Any) -> None:
        real(self, sorted({*checkpoints, *(each.id for each in self.completed())}), **more)

    monkeypatch.setattr(job_store.JobStore, "delete_checkpoints", delete)
    with pytest.raises(JobFailed, match="checkpoint 2: it is missing"):
        numbers_after_a_crash(tmp_path)


# --- r31: never back past what may be committed -----------------------------------------------------------------------


def numbers_after_damage(folder: Path) -> list[int]:
    build = numbers_into(lambda numbers: numbers.write(cw.parquet_sink(folder / "out"), uid="out"))
    scene = Scene(folder, build=build)
    for checkpoint in (1, 2):
        scene.trigger()
        scene.step_until(lambda: len(list((folder / "out").glob("*.parquet"))) == checkpoint)  # noqa: B023  # awaited at once
    scene.damage(2)
    scene.simulation.crash()
    scene.finish()
    return sorted(value for file in (folder / "out").glob("*.parquet") for value in pl.read_parquet(file)["value"])


def test_a_damaged_checkpoint_whose_output_is_visible_is_not_gone_behind(tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="checkpoint 2 may have been committed"):
        numbers_after_damage(tmp_path)


def test_rule_31_broken_a_silent_fallback_that_writes_rows_twice_is_caught(tmp_path: Path, monkeypatch: Patch) -> None:
    def fall_back(candidates: Any, committed: Any, **_: Any) -> FallBack:
        return FallBack(max((each for each in candidates if each.problem is None), key=lambda each: each.id), "")

    monkeypatch.setattr(job_store, "choose_after_damage", fall_back)
    numbers = numbers_after_damage(tmp_path)
    assert sorted(set(numbers)) == EACH_ONCE
    assert len(numbers) > len(EACH_ONCE)
