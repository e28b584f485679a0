"""Failures of the user's own functions, told so that the user finds the line."""

import sysconfig
from pathlib import Path
from traceback import extract_tb
from types import TracebackType

from cutwater.errors import UserCodeError
from cutwater.rows import shortened

_OURS = str(Path(__file__).resolve().parents[1]) + "/"
_LIBRARIES = tuple({sysconfig.get_path(name) + "/" for name in ("stdlib", "purelib", "platlib")})


_COMPILED = (".pyx", ".pxi", ".pxd")
"""Frames of Cython name files of where the library was built: relative, and never the user's."""


def user_error(error: BaseException, where: str, row: object = None) -> UserCodeError:
    """``error``, raised by a function of the user for ``row``, as ours. Raise it ``from error``."""
    line = user_line(error.__traceback__)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    at = f" at {line}" if line else ""
    seen = f", for the row {shortened(row)}" if row is not None else ""
    first, *rest = text.splitlines()
    return UserCodeError("\n".join([f"{where}: {first}{at}{seen}", *rest]), line)


def user_line(traceback: TracebackType | None) -> str | None:
    """``"file.py:12"`` of the innermost frame that the user wrote: not ours and, if there is another, no library's."""
    frames = [frame for frame in extract_tb(traceback) if not _is_never_the_users(frame.filename)]
    written = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)] or frames
    return f"{Path(written[-1].filename).name}:{written[-1].lineno}" if written else None


def own_line(error: BaseException | None) -> str | None:
    """``"file.py:12"`` of the user's code that ``error``, or what it was raised from, came out of; None: no such code."""
    while error is not None:
        written = [
            frame
            for frame in extract_tb(error.__traceback__)
            if not frame.filename.startswith(_LIBRARIES) and not _is_never_the_users(frame.filename)
        ]
        if written:
            return f"{Path(written[-1].filename).name}:{written[-1].lineno}"
        error = error.__cause__
    return None


def _is_never_the_users(filename: str) -> bool:
    return filename.startswith((_OURS, "<frozen")) or filename.endswith(_COMPILED)
