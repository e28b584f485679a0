"""Examples are scripts, not a package: they are loaded as `cutwater run` loads them."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def example() -> Callable[[str], ModuleType]:
    def load(name: str) -> ModuleType:
        known = f"example_{name}"
        if known not in sys.modules:
            spec = importlib.util.spec_from_file_location(known, EXAMPLES / f"{name}.py")
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[known] = module
            spec.loader.exec_module(module)
        return sys.modules[known]

    return load
