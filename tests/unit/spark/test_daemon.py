"""A worker begins with everything imported and every kernel loaded: it is forked from a daemon that has done so."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def worker() -> Any:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.unit.spark.first_worker"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_first_task_of_a_worker_imports_nothing(worker: Any) -> None:
    assert worker["imported"] == []


def test_kernels_are_loaded_before_the_fork_and_no_task_loads_or_compiles_one(worker: Any) -> None:
    kernels = worker["before"]
    assert len(kernels) > 20, kernels
    assert [name for name, (signatures, _) in kernels.items() if signatures == 0] == []
    assert worker["after"] == kernels
