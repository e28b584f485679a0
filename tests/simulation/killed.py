"""A job whose only process kills itself while output is staged: ``python -m tests.simulation.killed <folder> <moment>``."""

import os
import signal
import sys
from pathlib import Path

import cutwater as cw
from tests.simulation.scene import Scene


def staged(folder: Path) -> list[Path]:
    return sorted([*folder.rglob("*.open"), *folder.rglob("*.ready")])


def run_until(folder: Path, moment: str) -> None:
    out = folder / "out"
    scene = Scene(folder, lambda counts: counts.write(cw.parquet_sink(out), uid="out"), 1000)
    scene.trigger()
    scene.step_until(lambda: len(list(out.glob("*.parquet"))) == 1)
    match moment:
        case "published":
            scene.trigger()
            scene.step_until(lambda: scene.has_metadata(2))
        case "prepared":
            scene.withheld = "Acknowledge"
            scene.trigger()
            scene.step_until(lambda: {path.suffix for path in staged(folder)} == {".ready", ".open"})
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    run_until(Path(sys.argv[1]), sys.argv[2])
