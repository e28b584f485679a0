"""What the C library does with memory that a worker frees.

A subtask frees and asks again for the same few megabytes with each batch. Left alone, the C library gives them back to the kernel
each time, which clears every page when it hands them out again.
"""

import ctypes
from contextlib import suppress

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
"""Names in malloc.h."""

KEPT_BYTES = 64 << 20
"""So much free memory stays with a process; what is beyond it is given back."""
GROWN_BY_BYTES = 8 << 20
LARGEST_KEPT_BYTES = 32 << 20
"""The most that the C library allows. A larger block is a mapping of its own, given back when it is freed."""


def keep_freed_memory() -> None:
    """For the calling process and those it forks. Without effect where the C library has no such settings."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        library.mallopt(_TOP_PAD, GROWN_BY_BYTES)
        library.mallopt(_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
