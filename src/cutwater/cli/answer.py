"""How a command ends: an answer for people or for programs, and the exit code that says whether it went well."""

import contextlib
import json
import math
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import typer

from cutwater.errors import ConfigError, CutwaterError, JobFailed
from cutwater.terminal import Terminal

FAILED = 1
WRONG_USE = 2
READER_LEFT = 128 + signal.SIGPIPE
"""What a shell reports of a program that a closed pipe ended."""


def answer(value: dict[str, Any], told: Callable[[], None], *, as_json: bool) -> None:
    """``value`` as one JSON object, or whatever ``told`` prints of it."""
    try:
        if as_json:
            print(json.dumps(_with_finite_numbers(value), indent=2, default=str, ensure_ascii=False, allow_nan=False))
        else:
            told()
        if sys.stdout is not None:  # closed by whoever started us: >&-
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is not None:
            raise  # a file that was to be read for the answer
        raise CutwaterError(f"the standard output cannot be written: {error.strerror}") from error


def _with_finite_numbers(value: Any) -> Any:
    """JSON has no word for NaN and the infinities, and many readers refuse Python's: they are null."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {key: _with_finite_numbers(each) for key, each in value.items()}
        case list() | tuple():
            return [_with_finite_numbers(each) for each in value]
        case _:
            return value


def kept_clear(*, as_json: bool) -> contextlib.AbstractContextManager[Any]:
    """What code of the user's prints must not stand in the way of whoever reads the JSON."""
    return contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()


def console() -> Terminal:
    """For answers to people. Where nobody looks, lines are long rather than wrapped: somebody may grep them."""
    return Terminal(
        highlight=False, soft_wrap=True, width=None if sys.stdout is not None and sys.stdout.isatty() else 240
    )


@contextmanager
def exit_codes(*, as_json: bool, trace: bool = False) -> Iterator[None]:
    """Turns our errors into a message and an exit code. Anything else is a bug of ours and keeps its stack trace."""
    try:
        yield
        if sys.stdout is not None:  # closed by whoever started us: >&-
            sys.stdout.flush()
    except BrokenPipeError:
        if not _drop_unread_output():
            raise  # another pipe than those: a bug of ours
        raise typer.Exit(READER_LEFT) from None
    except KeyboardInterrupt:
        raise _ended("canceled", FAILED, as_json=as_json) from None
    except ConfigError as error:
        raise _ended(str(error), WRONG_USE, as_json=as_json) from None
    except JobFailed as error:
        # Behind the first blank line stands the stack trace of the user's code; the first line names the user's line.
        message = str(error) if trace else str(error).partition("\n\n")[0]
        raise _ended(message, FAILED, as_json=as_json) from None
    except CutwaterError as error:
        raise _ended(str(error), FAILED, as_json=as_json) from None


def _drop_unread_output() -> bool:
    """Whether there is any. What of it is still in buffers goes nowhere: Python would write it at its end, and complain."""
    unread = [
        stream.fileno() for stream in (sys.__stdout__, sys.__stderr__) if stream is not None and _is_unread(stream)
    ]
    for descriptor in unread:
        _lead_nowhere(descriptor)
    return bool(unread)


def _is_unread(stream: TextIO) -> bool:
    """A pipe without a reader tells so without being written to."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _lead_nowhere(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _ended(message: str, code: int, *, as_json: bool) -> typer.Exit:
    value = {"status": "failed", "error": message}
    answered = _write_out(json.dumps(value, indent=2, ensure_ascii=False) + "\n" if as_json else "")
    if not (as_json and answered):
        print(f"cutwater: {message}", file=sys.stderr)
    return typer.Exit(code)


def _write_out(text: str) -> bool:
    """With what is still in buffers. What cannot be written goes nowhere: Python would try again at its end, and complain."""
    if sys.stdout is None:
        return False
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        if sys.__stdout__ is not None:
            _lead_nowhere(sys.__stdout__.fileno())
        return False
    return True
