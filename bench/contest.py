"""Runs contestants as processes of their own, one at a time, and reads the RESULT line that each prints."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.report import Run
from bench.workloads import Contestant, Workload

ROOT = Path(__file__).resolve().parent.parent
VENVS = ROOT / "bench" / ".venvs"
PEERS = ROOT / "bench" / "peers"


def interleaved(workloads: Sequence[Workload], rounds: int) -> Iterator[tuple[int, Workload, Contestant]]:
    """Every contestant once per round. Each round begins with another one, so that nobody always runs first or last."""
    for number in range(rounds):
        for workload in workloads:
            turn = number % len(workload.contestants)
            for contestant in workload.contestants[turn:] + workload.contestants[:turn]:
                yield number, workload, contestant


def is_installed(contestant: Contestant) -> bool:
    return contestant.is_ours or (VENVS / contestant.venv / ".installed").exists()


def run(workload: Workload, contestant: Contestant, *, quick: bool, limit: float, quiet: float) -> Run:
    """One run. Never raises: a contestant that is missing, fails or takes too long yields a Run that says so."""
    if not is_installed(contestant):
        reason = f"not installed: bench/peers/install.sh {contestant.venv}"
        return Run(workload.id, contestant.name, None, reason)
    arguments = [*contestant.command, *(contestant.quick if quick else ())]
    if contestant.is_ours:
        command, folder = [sys.executable, "-m", *arguments], ROOT
    else:
        command, folder = [str(VENVS / contestant.venv / "bin" / "python"), *arguments], PEERS
    environment = dict(os.environ, PEERS_QUIET=str(quiet))
    environment.pop("PEERS_OUT", None)
    if contestant.is_ours:
        environment["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=errors, text=True, start_new_session=True
        )
        try:
            process.wait(limit)
            failure = "" if process.returncode == 0 else f"ended with code {process.returncode}"
        except subprocess.TimeoutExpired:
            failure = f"did not end within {limit:.0f} s"
        finally:
            _end(process)
        output.seek(0)
        errors.seek(0)
        result = read_result(output)
        if failure or result is None:
            tail = _last_words(errors)
            return Run(workload.id, contestant.name, None, f"{failure or 'printed no RESULT'}{tail}")
    return Run(workload.id, contestant.name, result)


def read_result(lines: Iterator[str] | Sequence[str]) -> dict[str, object] | None:
    """The last RESULT line, or None."""
    found = None
    for line in lines:
        if line.startswith("RESULT "):
            found = json.loads(line.removeprefix("RESULT "))
    return found


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the process with everything in the session that it was started in: JVMs and workers outlive their parent."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_words(lines: Iterator[str]) -> str:
    words = [line.strip() for line in lines if line.strip()]
    return f" ({words[-1][:160]})".replace("|", "/") if words else ""
