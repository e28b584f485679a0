"""Examples show what users can write: nothing of the inside."""

import ast
import re
from pathlib import Path

import pytest

from tests.examples.conftest import EXAMPLES

PUBLIC = {"cutwater", "cutwater.testing"}


def imported(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                found |= {each.name for each in names}
            case ast.ImportFrom(module) if module is not None:
                found.add(module)
    return {name for name in found if name.split(".")[0] == "cutwater"}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_imports_only_what_is_promised(path: Path) -> None:
    assert imported(path.read_text()) <= PUBLIC


def test_every_example_is_listed_and_every_listed_one_exists() -> None:
    listed = set(re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text()))
    assert listed == {path.name for path in EXAMPLES.glob("*.py")}
