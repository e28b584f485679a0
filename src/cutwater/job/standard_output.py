"""Printed rows, on the driver's standard output: for as long as anybody is there to read them."""

import sys
from collections.abc import Callable, Sequence


class StandardOutput:
    """``log`` hears once that there is none, ``reader_left`` that whoever read it is gone."""

    def __init__(self, log: Callable[[str], None], reader_left: Callable[[], None]) -> None:
        self._log = log
        self._reader_left = reader_left
        self._goes_nowhere = False

    def write(self, lines: Sequence[str]) -> None:
        """Raises OSError where the output is kept but cannot be written, as on a full disk."""
        if self._goes_nowhere:
            return
        out = sys.stdout
        # ``>&-``, or a service without one: whoever started us wants none.
        if out is None or getattr(out, "closed", False):
            self._goes_nowhere = True
            self._log("there is no standard output: rows to be printed are dropped; the job goes on")
            return
        text = "".join(f"{line}\n" for line in lines)
        try:
            try:
                out.write(text)
            except UnicodeEncodeError as error:  # nothing of it was written
                out.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
            out.flush()
        except BrokenPipeError:
            self._goes_nowhere = True
            self._log("nobody reads the standard output any more: the job is canceled; its checkpoints stay")
            self._reader_left()
