"""What a failing subtask still does: it closes what it opened, and tells the driver why it failed. And what a slow one does."""

import sys
import threading
import traceback
from collections.abc import Callable

SHOWN_CALLS = 6
CLOSE_SECONDS = 5.0
"""How long the driver may wait to hear of a failure, because user code is being closed."""


def close_then_tell(close: Callable[[], None], tell: Callable[[], None], seconds: float = CLOSE_SECONDS) -> None:
    """``close`` on this thread, which user code was opened on, then ``tell``; after ``seconds`` without waiting for ``close``.

    ``tell`` is called once. ``close`` must not raise.
    """
    telling = _Once(tell)
    late = threading.Timer(seconds, telling)
    late.daemon = True
    late.start()
    close()
    late.cancel()
    telling()


def stack_of(thread: int) -> str:
    """Where a living thread is: its innermost calls."""
    frame = sys._current_frames().get(thread)
    return "".join(traceback.format_stack(frame)[-SHOWN_CALLS:]) if frame is not None else ""


class _Once:
    """Calls ``act`` for whoever comes first; the other one waits until that is done."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act: Callable[[], None] | None = act
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            act, self._act = self._act, None
            if act is not None:
                act()
