"""A daemon forgets what it knows of zip files, and its workers find everything in them nevertheless."""

import importlib
import sys
import zipfile
import zipimport
from pathlib import Path

import pytest

from cutwater.spark.zip_finders import forget_zip_finders


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its modules are in a zip file, as PySpark's are in a worker."""
    archive = tmp_path / "zipped.zip"
    with zipfile.ZipFile(archive, "w") as written:
        for name in ("zipped/__init__.py", "zipped/inner/__init__.py", "zipped/inner/one.py", "zipped/inner/two.py"):
            written.writestr(name, f"name = {name!r}")
    monkeypatch.syspath_prepend(archive)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return "zipped"


def _zip_finders() -> list[str]:
    return [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimport.zipimporter)]


def test_no_finder_is_left_to_read_its_zip_file_again(package: str) -> None:
    importlib.import_module(f"{package}.inner.one")
    assert len(_zip_finders()) >= 3
    forget_zip_finders()
    assert _zip_finders() == []


def test_what_is_imported_afterwards_is_found(package: str) -> None:
    importlib.import_module(f"{package}.inner.one")
    forget_zip_finders()
    importlib.invalidate_caches()
    assert importlib.import_module(f"{package}.inner.two").name == "zipped/inner/two.py"
