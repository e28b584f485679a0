"""``make test`` runs two parts, and tells of a failure in either. Its pytest here only writes down how it was called."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "test.sh"
RECORDING = """#!/usr/bin/env bash
echo "$@" >> calls
echo "$TMPDIR" >> folders
[ ! -e fails ] || ! grep -qFx -- "$*" fails
"""
BESIDE = "--numprocesses=logical --dist=worksteal"


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    for folder in ("scripts", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "scripts")
    recording = tmp_path / ".venv" / "bin" / "pytest"
    recording.write_text(RECORDING)
    recording.chmod(0o755)
    yield tmp_path
    for folder in _folders(tmp_path):
        if folder.is_relative_to("/dev/shm"):
            shutil.rmtree(folder, ignore_errors=True)


def _folders(tree: Path) -> list[Path]:
    """Where each call was told to keep its temporary files."""
    return [Path(line) for line in (tree / "folders").read_text().splitlines()]


def called(tree: Path, *paths: str) -> tuple[int, list[str]]:
    (tree / "calls").unlink(missing_ok=True)
    ended = subprocess.run([tree / "scripts" / "test.sh", *paths], capture_output=True, text=True, check=False)
    print(ended.stdout, ended.stderr)
    return ended.returncode, (tree / "calls").read_text().splitlines()


def test_tests_without_spark_run_side_by_side_and_the_others_after_them_alone(tree: Path) -> None:
    status, calls = called(tree, "tests/unit", "tests/simulation", "tests/spark", "tests/cli")
    assert status == 0
    assert calls == [f"{BESIDE} tests/unit tests/simulation", "tests/spark tests/cli"]


@pytest.mark.parametrize(
    ("path", "call"),
    [
        ("tests/unit/barrier/", f"{BESIDE} tests/unit/barrier/"),
        ("tests/simulation/test_x.py::test_y", f"{BESIDE} tests/simulation/test_x.py::test_y"),
        ("tests/spark/test_x.py", "tests/spark/test_x.py"),
        ("tests/unitary", "tests/unitary"),
    ],
)
def test_a_part_without_tests_is_not_run(tree: Path, path: str, call: str) -> None:
    assert called(tree, path) == (0, [call])


@pytest.mark.parametrize("failing", [f"{BESIDE} tests/unit", "tests/spark"])
def test_when_one_part_fails_both_are_run_and_the_whole_fails(tree: Path, failing: str) -> None:
    (tree / "fails").write_text(failing + "\n")
    assert called(tree, "tests/unit", "tests/spark") == (1, [f"{BESIDE} tests/unit", "tests/spark"])


def test_the_folder_in_memory_is_removed_unless_a_test_failed(tree: Path) -> None:
    called(tree, "tests/unit")
    (tree / "fails").write_text(f"{BESIDE} tests/unit\n")
    called(tree, "tests/unit")
    passed, failed = _folders(tree)
    if not failed.is_relative_to("/dev/shm"):
        pytest.skip("/dev/shm is small here")
    assert failed.is_dir() and not passed.exists()
