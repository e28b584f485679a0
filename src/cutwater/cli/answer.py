"""How a command ends: an answer for people or for programs, and the exit code that says whether it went well."""

import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console

from cutwater.errors import ConfigError, CutwaterError, JobFailed

FAILED = 1
WRONG_USE = 2


def answer(value: dict[str, Any], told: Callable[[], None], *, as_json: bool) -> None:
    """``value`` as one JSON object, or whatever ``told`` prints of it."""
    if as_json:
        print(json.dumps(_with_finite_numbers(value), indent=2, default=str, ensure_ascii=False, allow_nan=False))
    else:
        told()


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


def console() -> Console:
    """For answers to people. Where nobody looks, lines are long rather than wrapped: somebody may grep them."""
    return Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 240)


@contextmanager
def exit_codes(*, as_json: bool, trace: bool = False) -> Iterator[None]:
    """Turns our errors into a message and an exit code. Anything else is a bug of ours and keeps its stack trace."""
    try:
        yield
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


def _ended(message: str, code: int, *, as_json: bool) -> typer.Exit:
    if as_json:
        print(json.dumps({"status": "failed", "error": message}, indent=2, ensure_ascii=False))
    else:
        print(f"cutwater: {message}", file=sys.stderr)
    return typer.Exit(code)
