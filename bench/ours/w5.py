"""W5: SIGKILL of a worker until the first new output, with a warm driver and a million keys of state.

The worker is one that has written output, so it holds keyed state. The first output of the new attempt is the first
record in a log that did not exist at the time of the kill.
"""

import argparse
import os
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from bench.ours.arrivals import log_names, now_us, read_arrivals
from bench.ours.session import arguments, environment, scratch_folder, session, variant
from bench.ours.w6 import stamped_totals
from bench.peers.measure import emit, note, quiet

LIMIT_SECONDS = 90.0


def wait_until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {LIMIT_SECONDS:.0f} s")
        time.sleep(0.005)


def kill_once(spark: SparkSession, wanted: argparse.Namespace, folder: Path, name: str) -> tuple[float, int]:
    """Seconds from the kill to the first new record, and the bytes of state in the checkpoint before the kill."""
    env = environment(spark, wanted, folder)
    stamped_totals(env, rate=wanted.rate, seconds=3600, keys=wanted.keys, folder=folder)
    job = env.start(name, restore="fresh")
    try:
        wait_until(lambda: bool(log_names(folder)), "first output")
        time.sleep(wanted.run)
        completed = [info for info in job.checkpoints() if info.status == "completed"]
        if not completed:
            raise RuntimeError(f"no checkpoint was completed in {wanted.run} s: nothing to come back from")
        victim = max(read_arrivals(folder), key=lambda log: int(log.arrived_at[-1])).pid
        before = log_names(folder)
        killed_at = now_us()
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: bool(log_names(folder) - before), "first output after the kill")
        new = [log for log in read_arrivals(folder) if log.name not in before]
        return (min(int(log.arrived_at[0]) for log in new) - killed_at) / 1e6, completed[0].state_bytes
    finally:
        job.cancel()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rate", type=int, default=200_000)
    parser.add_argument("--run", type=float, default=12, help="seconds of output before the kill")
    parser.add_argument("--reps", type=int, default=3)
    wanted = parser.parse_args()

    seconds, state_bytes = [], []
    with session() as spark:
        for number in range(wanted.reps):
            quiet()
            with scratch_folder() as folder:
                outage, stored = kill_once(spark, wanted, folder, f"w5-{number}")
            note(f"  state {stored / 1e6:.1f} MB: first output {outage:.2f} s after the kill")
            seconds.append(outage)
            state_bytes.append(stored)
    emit(
        "W5",
        "cutwater",
        f"worker SIGKILL {variant(wanted)}",
        reps=wanted.reps,
        kill_to_first_output_s=statistics.median(seconds),
        worst_s=max(seconds),
        state_mb=statistics.median(state_bytes) / 1e6,
    )


if __name__ == "__main__":
    main()
