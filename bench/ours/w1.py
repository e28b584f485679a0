"""W1: keyed running count and sum over a million keys, every update handed to a sink that drops it.

One run warms the session up and fills the caches of compiled code; the next ones count. The clock runs around
`execute`, so submitting the job and its final checkpoint are in it.
"""

import statistics

import polars as pl

import cutwater as cw
from bench.ours.session import arguments, environment, scratch_folder, session, spread_over_keys, variant
from bench.peers.measure import Meter, emit, note, quiet


def totals(env: cw.Environment, records: int, keys: int) -> None:
    numbers = env.read(cw.sequence(records), uid="numbers")
    pairs = numbers.with_columns(k=spread_over_keys(keys), v=pl.col("value") % 100)
    pairs.key_by("k").agg(n=cw.count(), total=cw.sum("v")).uid("totals").write(cw.discard(), uid="dropped")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--n", type=int, default=40_000_000)
    parser.add_argument("--warm-up", type=int, default=40_000_000, help="records of the run that does not count")
    parser.add_argument("--reps", type=int, default=1)
    wanted = parser.parse_args()

    seconds, cpu, others, completed = [], [], [], 0
    with session() as spark:
        for number, records in enumerate([wanted.warm_up] + [wanted.n] * wanted.reps):
            if number:
                quiet()
            with scratch_folder() as folder:
                env = environment(spark, wanted, folder)
                totals(env, records, wanted.keys)
                with Meter() as meter:
                    result = env.execute(f"w1-{number}", restore="fresh")
            note(f"  run {number}: {meter.wall:.2f} s, {records / meter.wall / 1e6:.2f} M/s, cpu {meter.cpu:.1f} s")
            if number:
                seconds.append(meter.wall)
                cpu.append(meter.cpu)
                others.append(meter.others)
                completed = result.checkpoints
    emit(
        "W1",
        "cutwater",
        variant(wanted),
        n=wanted.n,
        reps=wanted.reps,
        rec_per_s=int(wanted.n / statistics.median(seconds)),
        best=int(wanted.n / min(seconds)),
        worst=int(wanted.n / max(seconds)),
        cpu_us_per_rec=statistics.median(cpu) / wanted.n * 1e6,
        others_cores=statistics.median(others),
        ck_completed=completed,
    )


if __name__ == "__main__":
    main()
