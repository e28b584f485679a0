"""What each operator of a subtask is told when it opens."""

from dataclasses import dataclass

from cutwater.flow.clock import Clock
from cutwater.flow.key_groups import key_group_range
from cutwater.operators.operator import DriverPort, OperatorContext, ResumedState
from cutwater.operators.steps import Steps
from cutwater.operators.turn import Turn
from cutwater.subtask.setup import Resumed, SubtaskSetup, SubtaskState


@dataclass(frozen=True, slots=True)
class OperatorContexts:
    """``counters``: by uid; what functions count is read from there. ``turn``: of the head."""

    setup: SubtaskSetup
    state: SubtaskState
    resumed: Resumed | None
    clock: Clock
    counters: dict[str, dict[str, int]]
    driver: DriverPort
    turn: Turn

    def __call__(self, uid: str, name: str) -> OperatorContext:
        setup, clock = self.setup, self.clock
        parallelism = setup.vertex.parallelism
        return OperatorContext(
            job=setup.job,
            uid=uid,
            name=name,
            subtask=setup.subtask.index,
            parallelism=parallelism,
            max_parallelism=setup.max_parallelism,
            attempt=setup.attempt,
            incarnation=setup.incarnation,
            key_groups=key_group_range(setup.subtask.index, parallelism, setup.max_parallelism),
            backend=setup.backend,
            now=lambda: int(clock.wall() * 1000),
            restored=self.state.operators.get(uid),
            resumed=self._resumed_state(uid),
            visible_up_to=self.state.visible_up_to,
            behind_source=setup.vertex.is_source,
            checkpointed=setup.checkpointed,
            counters=self.counters[uid],
            driver=self.driver,
            steps=Steps(clock.monotonic, setup.limits.slice_seconds),
            turn=self.turn if uid == setup.vertex.head.uid else Turn(),
        )

    def _resumed_state(self, uid: str) -> ResumedState | None:
        if self.resumed is None or uid not in self.resumed.states:
            return None
        return ResumedState(self.resumed.checkpoint, self.resumed.states[uid])
