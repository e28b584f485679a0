"""The in-process Transport with its scheduler and clock, and ``cw.testing.run`` for users' own tests.

The same subtask, barrier, coordinator and state code that runs on Spark, one step at a time, in an order that the caller
chooses. May import everything but ``spark`` and ``cli``.
"""

from cutwater.testing.run import run
from cutwater.testing.script import ADVANCE, CHECKPOINT, FAIL, TRIGGER, script
from cutwater.testing.state_contract import STATE_CHECKS, check_state_backend

__all__ = ["ADVANCE", "CHECKPOINT", "FAIL", "STATE_CHECKS", "TRIGGER", "check_state_backend", "run", "script"]
