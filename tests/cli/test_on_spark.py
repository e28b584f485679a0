"""What a new user meets, on Spark: the README's example, `cutwater run`, the demo, the doctor."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.start import RunEnd
from cutwater.cli.main import app
from cutwater.spark.session import local_session

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 240

pytestmark = pytest.mark.timeout(PATIENCE_SECONDS + 60)


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[None]:
    """One session for the tests that run in this process; one that others started is theirs to stop."""
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    own = None if found is not None else local_session(1)
    yield
    if own is not None:
        own.stop()


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_the_example_of_the_readme_counts_the_words_of_the_readme(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "README.md").read_text()
    (tmp_path / "README.md").write_text(text)
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12, "the README promises a short example"
    names: dict[str, object] = {"__name__": "readme"}
    exec(compile(code, "README.md", "exec"), names)
    assert names["counts"] == Counter(text.lower().split())
    assert "status='finished'" in capsys.readouterr().out


GOOD = """
import cutwater as cw
from beside import double

def environment():
    return cw.Environment(parallelism=1, checkpointing=cw.Checkpointing("500ms", storage="memory"))

def pipeline(env):
    numbers = env.read(cw.sequence(1000), uid="numbers")
    numbers.map(lambda row: (double(row.value),), "value long").filter("value > 1990").collect("large")
"""


def test_run_answers_in_json_and_stores_checkpoints_where_it_was_told(tmp_path: Path) -> None:
    """A process of its own: what a user types. Its file imports a module that lies beside it."""
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "beside.py").write_text("def double(value):\n    return 2 * value\n")
    command = [sys.executable, "-m", "cutwater.cli.main", "run", "good.py", "--json", "--checkpoints", "file:stored"]
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["job"], result["status"], result["attempts"], result["records_in"]) == ("good", "finished", 1, 1000)
    assert sorted(row["value"] for row in result["collected"]["large"]) == [1992, 1994, 1996, 1998]
    listed = json.loads(call("checkpoints", "file:stored", "--json").stdout)["jobs"]
    assert listed["good"]["checkpoints"][0]["kind"] == "final"


def test_run_shows_what_was_collected_and_how_it_went(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(
        "import cutwater as cw\n\ndef pipeline(env):\n    env.read(cw.sequence(30), uid='numbers').collect('all')\n"
    )
    result = call("run", "small.py", "--name", "tiny", "--parallelism", "1", "--set", "interval=1s")
    assert result.exit_code == 0, result.output
    assert "all (30 rows)" in result.stdout
    assert "... and 10 more" in result.stdout
    assert "tiny: finished" in result.stdout
    assert Path("checkpoints/tiny").is_dir()


PRINTING = """
import cutwater as cw

def environment():
    return cw.Environment(parallelism=1, checkpointing=cw.Checkpointing("200ms", storage="file:stored"))

def pipeline(env):
    env.read(cw.sequence(10_000_000, rate=2000), uid="numbers").print()
"""


def test_a_reader_that_leaves_ends_the_job_once_and_for_resuming(tmp_path: Path) -> None:
    """A process of its own in a real pipe: ``cutwater run printing.py | head -1``."""
    (tmp_path / "printing.py").write_text(PRINTING)
    run = f"{sys.executable} -m cutwater.cli.main run printing.py"
    done = subprocess.run(
        ["bash", "-c", f"{run} | head -1; exit ${{PIPESTATUS[0]}}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("value=")
    assert done.returncode == 141, done.stderr
    assert "nobody reads the standard output any more: the job is canceled; its checkpoints stay" in done.stderr
    assert "Traceback" not in done.stderr
    assert "restarting" not in done.stderr
    store = JobStore(FileStorage(str(tmp_path / "stored")), "printing")
    assert store.facts("auto", all_sinks_idempotent=True, on_damaged="fail").end is RunEnd.CANCELED


def print_numbers(folder: Path, redirection: str) -> subprocess.CompletedProcess[str]:
    (folder / "few.py").write_text(PRINTING.replace("10_000_000, rate=2000", "1000"))
    command = f"{sys.executable} -m cutwater.cli.main run few.py {redirection}"
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip


def test_a_job_that_prints_runs_to_its_end_where_there_is_no_standard_output(tmp_path: Path) -> None:
    done = print_numbers(tmp_path, ">&-")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("there is no standard output: rows to be printed are dropped; the job goes on") == 1
    assert "Traceback" not in done.stderr
    store = JobStore(FileStorage(str(tmp_path / "stored")), "few")
    assert store.facts("auto", all_sinks_idempotent=True, on_damaged="fail").end is RunEnd.FINISHED


def test_a_job_that_prints_where_there_is_no_room_fails_once_and_says_so(tmp_path: Path) -> None:
    done = print_numbers(tmp_path, ">/dev/full")
    assert done.returncode == 1, done.stderr
    assert "standard output, where rows are printed, fails: No space left on device" in done.stderr
    assert "restarting" not in done.stderr and "Exception ignored" not in done.stderr


def test_code_that_fails_ends_with_1_and_its_line_but_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(
        "import cutwater as cw\n\n"
        "def environment():\n"
        "    return cw.Environment(parallelism=1, restart=cw.no_restart(), checkpointing=cw.Checkpointing('1s'))\n\n"
        "def invert(row):\n"
        "    return (1 // (row.value - 5),)\n\n"
        "def pipeline(env):\n"
        "    env.read(cw.sequence(10), uid='s').map(invert, 'x long').uid('inverted').collect('all')\n"
    )
    result = call("run", "failing.py")
    assert result.exit_code == 1
    assert "failing.py:7" in result.output
    assert "inverted" in result.output
    assert "Traceback" not in result.output
    assert "Traceback" in call("run", "failing.py", "--trace").output


def test_restoring_what_is_not_there_fails_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(
        "import cutwater as cw\n\ndef pipeline(env):\n    env.read(cw.sequence(3), uid='numbers').collect('all')\n"
    )
    result = call("run", "small.py", "--restore", "latest", "--parallelism", "1")
    assert result.exit_code == 1
    assert "restore='auto'" in result.output


def test_the_demo_kills_a_worker_and_proves_its_counts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cutwater.cli.main", "demo", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["equal"] is True
    assert report["attempts"] == 2
    assert report["checkpoints"] >= 4
    assert report["killed"]["after_checkpoints"] >= 3
    assert f"kill -9 {report['killed']['pid']}" in done.stderr
    assert all(each["n"] == each["plain_count"] for each in report["top"])
    assert not list(tmp_path.iterdir()), "the demo leaves nothing behind"


def test_the_doctor_finds_this_machine_well() -> None:
    command = [sys.executable, "-m", "cutwater.cli.main", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    findings = {finding["what"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert findings["Spark"]["found"].startswith("4.3.")
    assert "64 slots" in findings["local session"]["found"]
    assert {"Java", "Python", "pyarrow", "polars", "Spark settings"} <= set(findings)
