import contextlib
import os
import sys
from pathlib import Path

import psutil
import pytest

from bench import contest
from bench.contest import interleaved, read_result
from bench.workloads import WORKLOADS, Contestant, Workload


def test_every_contestant_runs_once_per_round_and_nobody_always_begins() -> None:
    workload = WORKLOADS["W6"]
    turns = list(interleaved([workload], rounds=len(workload.contestants)))
    for number in range(len(workload.contestants)):
        in_round = [contestant for turn, _, contestant in turns if turn == number]
        assert sorted(c.name for c in in_round) == sorted(c.name for c in workload.contestants)
    first = {turns[number * len(workload.contestants)][2].name for number in range(len(workload.contestants))}
    assert first == {contestant.name for contestant in workload.contestants}


def test_the_last_result_line_counts_and_noise_does_not() -> None:
    assert read_result(["WARN x", 'RESULT {"a": 1}', 'RESULT {"a": 2}', "bye"]) == {"a": 2}
    assert read_result(["no result here"]) is None


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that stands for a contestant of ours; the test writes it."""
    monkeypatch.setattr(contest, "ROOT", tmp_path)
    return tmp_path / "contestant_under_test.py"


ALONE = Workload("W", "a workload", (Contestant("ours", "ours", ("contestant_under_test",)),), ())


def run_alone(limit: float = 30) -> contest.Run:
    return contest.run(ALONE, ALONE.contestants[0], quick=False, limit=limit, quiet=0)


def test_a_contestant_that_fails_is_reported_with_its_last_words(script: Path) -> None:
    script.write_text("raise SystemExit('no such backend')")
    outcome = run_alone()
    assert outcome.result is None
    assert outcome.failure == "ended with code 1 (no such backend)"


def test_a_result_of_a_contestant_that_then_fails_does_not_count(script: Path) -> None:
    script.write_text("""print('RESULT {"a": 1}')\nraise SystemExit('lost rows')""")
    outcome = run_alone()
    assert (outcome.result, outcome.failure) == (None, "ended with code 1 (lost rows)")


def test_a_contestant_that_hangs_is_ended_with_its_children(script: Path, tmp_path: Path) -> None:
    child = "import time; time.sleep(60)"
    script.write_text(
        "import subprocess, sys, pathlib\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "pathlib.Path('child').write_text(str(child.pid))\n"
        "child.wait()\n"
    )
    outcome = run_alone(limit=2)
    assert outcome.failure.startswith("did not end within 2 s")
    pid = int((tmp_path / "child").read_text())
    with contextlib.suppress(psutil.NoSuchProcess):  # a signal takes its time
        psutil.wait_procs([psutil.Process(pid)], timeout=20)
    gone = not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert gone, f"{pid} of {os.path.basename(sys.executable)} still runs"


def test_a_peer_that_is_not_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(contest, "VENVS", tmp_path)
    outcome = contest.run(ALONE, Contestant("Flink", "flink", ("x.py",)), quick=True, limit=1, quiet=0)
    assert outcome.failure == "not installed: bench/peers/install.sh flink"
