"""W1: keyed running count and sum over a million keys, every update handed to a sink that drops it.

The first runs warm the session up and fill the caches of compiled code. Then runs with and without checkpoints alternate in the
same session: the first give the throughput, both together what checkpoints cost. The clock runs around `execute`, so
submitting the job and its final checkpoint are in it.
"""

import statistics

import polars as pl

import cutwater as cw
from bench.ours.session import (
    WARM_UPS,
    alternating,
    arguments,
    cost_percent,
    environment,
    scratch_folder,
    session,
    spread_over_keys,
    variant,
)
from bench.peers.measure import Meter, emit, note, quiet


def totals(env: cw.Environment, records: int, keys: int) -> None:
    numbers = env.read(cw.sequence(records), uid="numbers")
    pairs = numbers.with_columns(k=spread_over_keys(keys), v=pl.col("value") % 100)
    pairs.key_by("k").agg(n=cw.count(), total=cw.sum("v")).uid("totals").write(cw.discard(), uid="dropped")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--n", type=int, default=40_000_000)
    parser.add_argument("--pairs", type=int, default=4, help="runs with checkpoints, and as many without")
    wanted = parser.parse_args()

    seconds: dict[bool, list[float]] = {True: [], False: []}
    cpu: dict[bool, list[float]] = {True: [], False: []}
    others, completed = [], 0
    with session() as spark:
        for number, checkpoints in enumerate([*alternating(WARM_UPS // 2), *alternating(wanted.pairs)]):
            quiet()
            with scratch_folder() as folder:
                env = environment(spark, wanted, folder, checkpoints=checkpoints)
                totals(env, wanted.n, wanted.keys)
                with Meter() as meter:
                    result = env.execute(f"w1-{number}", restore="fresh")
            note(f"  run {number}: {meter.wall:.2f} s, {wanted.n / meter.wall / 1e6:.2f} M/s, cpu {meter.cpu:.1f} s")
            if number >= WARM_UPS:
                seconds[checkpoints].append(meter.wall)
                cpu[checkpoints].append(meter.cpu)
                others.append(meter.others)
                completed = max(completed, result.checkpoints)
    if wanted.checkpoints != "off" and completed < min(seconds[True]) / 5:
        raise RuntimeError(f"only {completed} checkpoints completed in {min(seconds[True]):.1f} s")
    emit(
        "W1",
        "cutwater",
        variant(wanted),
        n=wanted.n,
        pairs=wanted.pairs,
        rec_per_s=int(wanted.n / statistics.median(seconds[True])),
        best=int(wanted.n / min(seconds[True])),
        worst=int(wanted.n / max(seconds[True])),
        rec_per_s_without=int(wanted.n / statistics.median(seconds[False])),
        seconds_with=seconds[True],
        seconds_without=seconds[False],
        cost_percent=cost_percent(seconds[True], seconds[False]),
        cpu_cost_percent=cost_percent(cpu[True], cpu[False]),
        cpu_us_per_rec=statistics.median(cpu[True]) / wanted.n * 1e6,
        others_cores=statistics.median(others),
        ck_completed=completed,
    )


if __name__ == "__main__":
    main()
