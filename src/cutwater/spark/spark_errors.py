"""What Spark's error texts mean: the root cause hides behind its own words about it."""

import re

_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt|Exit))(?:: (.*))?$")
_ALL_CANCELED = "as part of cancellation of all jobs"
_MISSING_MODULE = re.compile(r"No module named '([^']+)'")


def cause_in(text: str) -> str:
    """One line: the exception of the Python worker if there is one in ``text``, else Spark's own first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "no reason was given"
    raised = _raised_in_worker(lines)
    if raised is None:
        return lines[0]
    missing = _MISSING_MODULE.search(raised)
    if missing is not None:
        return (
            f"the workers have no module {missing[1]!r}, which the program uses. Install it where Spark's workers run, or send "
            f"it along with spark.sparkContext.addPyFile(...)."
        )
    return raised


def why_canceled(text: str) -> str | None:
    """What to tell if ``text`` says that the job was canceled together with all others; None if it does not."""
    if _ALL_CANCELED not in text:
        return None
    return (
        "Spark canceled all jobs of its session: Ctrl-C in a program with a Spark session does that, and so does "
        "sparkContext.cancelAllJobs(). To end this job alone, call job.cancel()"
    )


def _raised_in_worker(lines: list[str]) -> str | None:
    """The last line of the first Python traceback: what comes behind it are consequences."""
    try:
        start = next(n for n, line in enumerate(lines) if line.startswith("Traceback (most recent call last)"))
    except StopIteration:
        return None
    return next((line for line in lines[start + 1 :] if _PYTHON_ERROR.match(line)), None)
