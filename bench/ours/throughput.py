"""How many records a second a bounded job takes: some runs in one warm session, the clock around `execute`."""

import argparse
import statistics
from collections.abc import Callable

import cutwater as cw
from bench.ours.session import WARM_UPS, environment, scratch_folder, session, variant
from bench.peers.measure import Meter, emit, note, quiet


def measure(workload: str, wanted: argparse.Namespace, build: Callable[[cw.Environment, int], None]) -> None:
    """``build`` adds the job for ``wanted.n`` records to an environment; the first runs warm up."""
    seconds, cpu, completed = [], [], 0
    with session() as spark:
        for number in range(WARM_UPS + wanted.reps):
            quiet()
            with scratch_folder() as folder:
                env = environment(spark, wanted, folder)
                build(env, wanted.n)
                with Meter() as meter:
                    result = env.execute(f"{workload.lower()}-{number}", restore="fresh")
            note(f"  run {number}: {meter.wall:.2f} s, {wanted.n / meter.wall / 1e3:.0f} k/s, cpu {meter.cpu:.1f} s")
            if number >= WARM_UPS:
                seconds.append(meter.wall)
                cpu.append(meter.cpu)
                completed = max(completed, result.checkpoints)
    emit(
        workload,
        "cutwater",
        variant(wanted),
        n=wanted.n,
        rec_per_s=int(wanted.n / statistics.median(seconds)),
        best=int(wanted.n / min(seconds)),
        worst=int(wanted.n / max(seconds)),
        cpu_us_per_rec=statistics.median(cpu) / wanted.n * 1e6,
        ck_completed=completed,
    )
