"""Python's collector kept out of the way of a restore and of a cut."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """It would go through all that is restored, again and again, which takes longer than to restore it. In a cut it might find all
    values that were replaced since it came last: half a second for a million."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
