"""How long a loop rests that has nothing to do."""

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import cutwater as cw
from tests.simulation.scene import Scene


class RemindedNever(cw.KeyedProcess):
    def __init__(self, never: int | datetime) -> None:
        self.never = never

    def process(self, row: Any, ctx: Any) -> Any:
        ctx.timers.processing_time(self.never)
        yield (row.value,)

    def on_timer(self, timestamp: int, ctx: Any) -> Any: ...


@pytest.mark.parametrize("never", [datetime.max.replace(tzinfo=UTC), 2**63 - 1])
def test_however_far_away_a_timer_is_the_loop_rests_no_longer_than_a_thread_can_wait(
    tmp_path: Path, never: int | datetime
) -> None:
    def build(env: cw.Environment) -> None:
        numbers = env.read(cw.sequence(1000, rate=1000), uid="numbers")
        numbers.key_by("value").process(RemindedNever(never), "n long").uid("reminded").write(cw.discard(), uid="out")

    scene = Scene(tmp_path, build=build)

    def rests() -> list[float]:
        until = [loop.resting_until for loop in scene.simulation._loops]
        return [moment - scene.clock.monotonic() for moment in until if moment is not None]

    scene.step_until(lambda: max(rests(), default=0.0) > 60)
    assert max(rests()) <= threading.TIMEOUT_MAX
