"""Tests of what a user may not do, also where root runs them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

NOBODY = 65534


@contextmanager
def without_the_rights_of_root() -> Iterator[None]:
    """Root may read and write everything, so the tests that it runs become somebody else for a while."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
