"""What several of the simulations ask for."""

import pytest

from cutwater.operators import kept_windows, keyed_process, session_windows
from cutwater.subtask.source_subtask import SourceSubtask
from tests.simulation.world import Setting, World

STEP_SIZES = (
    (keyed_process, "TIMERS_A_STEP"),
    (kept_windows, "KEYS_A_STEP"),
    (session_windows, "SESSIONS_A_STEP"),
)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is due at once is done one by one, so that cuts come in between."""
    for module, size in STEP_SIZES:
        monkeypatch.setattr(module, size, 1)


@pytest.fixture
def source() -> SourceSubtask:
    """One that reads."""
    world = World(Setting("two sources", seed=1, crashes=0))
    for _ in range(30):
        world.step()
    return next(each for each in world.subtasks.values() if isinstance(each, SourceSubtask))
