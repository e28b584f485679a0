"""Kernels come from the cache unless something they were made of has changed, wherever it stands."""

import os
import subprocess
import sys
from pathlib import Path

INSTRUCTIONS = """
from numba import types
from numba.extending import intrinsic

FACTOR = {factor}

def _instruction():
    @intrinsic
    def scaled(_context, number):
        def generate(target, builder, _signature, arguments):
            return builder.mul(arguments[0], target.get_constant(types.int64, FACTOR))

        return types.int64(types.int64), generate

    return scaled

scaled = _instruction()
"""
PIECES = """
from cutwater.flow.compiled import inlined
from instructions import scaled

LIMIT = {limit}

@inlined
def further(number):
    return helper(number)

@inlined
def helper(number):
    return min(scaled(number) + {step}, LIMIT)
"""
KERNEL = """
from cutwater.flow.compiled import kernel
from pieces import further

LIMIT = 1000

@kernel("int64(int64)")
def stepped(number):
    return min(further(number), LIMIT)

print(stepped(1), sum(stepped.stats.cache_hits.values()))
"""


def _run(folder: Path, *, step: int, limit: int, factor: int = 1) -> str:
    """What a program prints that was given these: its result, and whether it found the kernel in the cache."""
    (folder / "instructions.py").write_text(INSTRUCTIONS.format(factor=factor))
    (folder / "pieces.py").write_text(PIECES.format(step=step, limit=limit))
    kernel = folder / "steps.py"
    if not kernel.exists():  # its time is part of the key
        kernel.write_text(KERNEL)
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    program = [sys.executable, "-c", "import steps"]
    return subprocess.run(program, env=env, check=True, capture_output=True, text=True).stdout.strip()


def test_a_kernel_is_compiled_anew_when_what_it_takes_from_other_modules_has_changed(tmp_path: Path) -> None:
    assert _run(tmp_path, step=5, limit=100) == "6 0"
    assert _run(tmp_path, step=5, limit=100) == "6 1"
    assert _run(tmp_path, step=7, limit=100) == "8 0"
    assert _run(tmp_path, step=7, limit=3) == "3 0"
    assert _run(tmp_path, step=7, limit=50, factor=6) == "13 0"
    assert _run(tmp_path, step=7, limit=50, factor=9) == "16 0"
    assert _run(tmp_path, step=7, limit=50, factor=9) == "16 1"
