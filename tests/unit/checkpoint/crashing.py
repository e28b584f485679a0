"""Real crashes: an act runs in a forked process, which kills itself with SIGKILL before one chosen step on the file system."""

import itertools
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

STEPS = ("open", "write", "fsync", "link", "rename", "unlink", "mkdir", "rmdir")
_SAID_LIMIT = 1 << 16


class Child:
    """A forked process and what it ``say``s; ``wait`` collects both."""

    def __init__(self, pid: int, reader: int) -> None:
        self.pid = pid
        self._reader = reader

    def wait(self) -> tuple[int, list[str]]:
        """Exit code (negative: the signal) and the words said. Call once."""
        said = b""
        while part := os.read(self._reader, _SAID_LIMIT):
            said += part
        os.close(self._reader)
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status), said.decode().split("\n")[:-1]

    def read_word(self) -> str:
        """The next word, without waiting for the end; words must be said one at a time."""
        return os.read(self._reader, _SAID_LIMIT).decode().strip()


def fork(act: Callable[[Callable[[object], None]], None]) -> Child:
    """Run ``act(say)`` in a copy of this process."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # the child touches no thread's lock: it runs only our own code
        pid = os.fork()
    if pid:
        os.close(writer)
        return Child(pid, reader)
    code = 70
    write = os.write
    try:
        os.close(reader)
        act(lambda word: (write(writer, f"{word}\n".encode()), None)[1])
        code = 0
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


def crash_everywhere(act: Callable[[Callable[[object], None]], None]) -> Iterator[list[str]]:
    """Run ``act`` again and again, killed before its first step, then before its second, ..., until it gets through.

    Yields what each run said, after its death; the last one is the run that ended well. Between two runs the caller brings
    the storage back to where it was, or the steps shift and some are skipped.
    """
    for at in itertools.count():

        def doomed(say: Callable[[object], None], at: int = at) -> None:
            _die_before(at)
            act(say)

        code, said = fork(doomed).wait()
        assert code in (0, -signal.SIGKILL), f"the act failed by itself at step {at}"
        yield said
        if code == 0:
            assert at > 3, "hardly any step was seen: the act does not go through the functions in STEPS"
            return


def _die_before(at: int) -> None:
    counter = itertools.count()

    def wrapped(name: str, call: Any) -> Any:
        def step(*args: Any, **kwargs: Any) -> Any:
            if next(counter) == at:
                if name == "write":  # the worst write: half of it
                    call(args[0], bytes(args[1])[: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return step

    for name in STEPS:
        setattr(os, name, wrapped(name, getattr(os, name)))


def fail_with(name: str, error: int, at: int = 0) -> None:
    """In a forked process: let the call number ``at`` of ``os.<name>`` fail with this errno."""
    counter, call = itertools.count(), getattr(os, name)

    def failing(*args: Any, **kwargs: Any) -> Any:
        if next(counter) == at:
            raise OSError(error, os.strerror(error))
        return call(*args, **kwargs)

    setattr(os, name, failing)
