"""`make bench`: every contestant of the chosen workloads, interleaved, round after round; then a table and a plot.

Examples: `make bench ARGS="--only W1 --rounds 1 --quick"` shows within minutes that everything runs.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

from bench.contest import ROOT, interleaved, run
from bench.plot import draw
from bench.report import Missed, Run, markdown, number, outcome, stand
from bench.workloads import WORKLOADS

RESULTS = ROOT / "bench" / "results"


def main() -> int:
    wanted = _arguments()
    if wanted.again:
        runs = [Run(**json.loads(line)) for line in wanted.again.read_text().splitlines()]
        chosen = [workload for workload in WORKLOADS.values() if any(run.workload == workload.id for run in runs)]
        started = wanted.again.stem
    else:
        chosen = [WORKLOADS[name] for name in wanted.only]
        started = time.strftime("%Y%m%d-%H%M%S")
        runs = _contest(wanted, started)
    standings = [standing for workload in chosen for standing in stand(workload, runs)]
    plot = RESULTS / "latest.png"
    drawn = draw(standings, plot)
    facts = [*_machine(), f"rounds: {_rounds(runs)}, interleaved; started {started}"]
    if wanted.quick:
        facts.append("**A quick run**: too short to judge anything by.")
    (RESULTS / "latest.md").write_text(markdown(standings, machine=facts, plot=plot.name if drawn else None))
    for item in standings:
        print(f"{item.workload.id} {item.figure.title}: {outcome(item.must).replace('**', '')}")
    print("written: bench/results/latest.md" + (", bench/results/latest.png" if drawn else ""))
    return 1 if wanted.strict and any(isinstance(item.must, Missed) for item in standings) else 0


def _contest(wanted: argparse.Namespace, started: str) -> list[Run]:
    raw = RESULTS / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    chosen = [WORKLOADS[name] for name in wanted.only]
    runs = []
    with (raw / f"{started}.jsonl").open("w") as log:
        for round_number, workload, contestant in interleaved(chosen, wanted.rounds):
            if contestant.is_ours and wanted.peers_only:
                continue
            print(f"round {round_number + 1}/{wanted.rounds} {workload.id} {contestant.name} ...", end=" ", flush=True)
            one = run(workload, contestant, quick=wanted.quick, limit=wanted.limit, quiet=wanted.quiet)
            runs.append(one)
            log.write(json.dumps(asdict(one)) + "\n")
            log.flush()
            print(_summary(one), flush=True)
    return runs


def _summary(one: Run) -> str:
    if one.result is None:
        return one.failure
    figures = WORKLOADS[one.workload].figures
    shown = []
    for figure in figures:
        value = next((one.result[key] for key in figure.keys if key in one.result), None)
        if isinstance(value, int | float) and not figure.against_baseline:
            shown.append(f"{figure.title} {number(value)} {figure.unit}")
    return ", ".join(shown)


def _rounds(runs: list[Run]) -> int:
    per_contestant = [
        sum(other.contestant == one.contestant and other.workload == one.workload for other in runs) for one in runs
    ]
    return max(per_contestant, default=0)


def _machine() -> list[str]:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return [
        f"{os.cpu_count()} cores, {pages * page / 2**30:.0f} GiB, {platform.system()} {platform.machine()}",
        f"Python {platform.python_version()}, {java[0] if java else 'no Java on the path'}",
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS), metavar="W", help="workloads"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="short runs: shows that it works, judges nothing")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one run of one contestant")
    parser.add_argument("--quiet", type=float, default=20, help="seconds to wait at most for an idle machine")
    parser.add_argument("--peers-only", action="store_true", help="leave ours out")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a must was missed")
    parser.add_argument(
        "--again", type=Path, metavar="RAW", help="write the report anew from bench/results/raw/*.jsonl"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
