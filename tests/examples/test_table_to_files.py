"""A bounded DataFrame-to-files job whose driver is killed at 70 %, and which goes on from there. On Spark, by two processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from tests.examples.conftest import EXAMPLES

ROWS = 20_000
PART = ROWS * 7 // 10
PATIENCE_SECONDS = 150

SLOW_BEHIND_70_PERCENT = f"""
import time
from pathlib import Path

import table_to_files as example


def model(frame):
    # One second a batch: so that the kill comes before the end, on a machine of any speed.
    if frame["id"].min() >= {PART} and not Path("go").exists():
        time.sleep(1)
    return example.model(frame)


def pipeline(env):
    example.pipeline(env, model)
"""


def _start(folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES), "ROWS": str(ROWS), "SECONDS": "2", "OUTPUT": "scores"}
    command = [sys.executable, "-m", "cutwater.cli.main", "run", "slow.py", "--json", "--set", "interval=200ms"]
    command += ["--parallelism", "2"]
    log = (folder / "stderr.txt").open("a")
    with log:
        return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)


def _committed(folder: Path) -> pl.DataFrame:
    files = sorted((folder / "scores").glob("**/*.parquet"))
    return pl.concat([pl.read_parquet(file) for file in files]) if files else pl.DataFrame({"id": []})


@pytest.mark.timeout(2 * PATIENCE_SECONDS + 60)
def test_a_job_killed_at_70_percent_goes_on_from_there_and_writes_every_row_once(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW_BEHIND_70_PERCENT)
    first = _start(tmp_path)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (seen := _committed(tmp_path)).height < PART:
            assert first.poll() is None, f"it ended by itself: {(tmp_path / 'stderr.txt').read_text()}"
            assert time.monotonic() < deadline, f"only {seen.height} rows: {(tmp_path / 'stderr.txt').read_text()}"
            time.sleep(0.2)
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    before = _committed(tmp_path)
    assert PART <= before.height < ROWS

    (tmp_path / "go").touch()
    second = _start(tmp_path)
    try:
        answer, _ = second.communicate(timeout=PATIENCE_SECONDS)
    finally:
        second.kill()
        second.communicate()
    assert second.returncode == 0, (tmp_path / "stderr.txt").read_text()
    result = json.loads(answer)
    assert result["status"] == "finished"
    assert result["records_in"] <= ROWS - before.height, "rows that were committed were read again"
    after = _committed(tmp_path)
    assert after["id"].sort().to_list() == list(range(ROWS))
    assert after.join(before, on=["id", "score"], how="semi").height == before.height, "a committed row has vanished"
