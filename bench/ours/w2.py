"""W2: word count in event-time windows: lines of ten words out of ten thousand, split, five seconds a window, a line a millisecond.

As for the peers the lines are made on the way, as texts, and taken apart again. The first runs warm up; the clock runs around
`execute`.
"""

import statistics

import polars as pl

import cutwater as cw
from bench.ours.session import WARM_UPS, arguments, environment, scratch_folder, session, variant
from bench.peers.measure import Meter, emit, note, quiet

WORDS = 10


def line() -> pl.Expr:
    """Words 0 to 9999, the small ones often, as the peers make them."""
    drawn = [(pl.col("value").hash(seed) % 1_000_000) / 1e6 for seed in range(WORDS)]
    return pl.concat_str([pl.lit(10_000.0).pow(each).cast(pl.Int64).cast(pl.String) for each in drawn], separator=" ")


def split(lines: pl.DataFrame) -> pl.DataFrame:
    return lines.select("ts", word=pl.col("line").str.split(" ")).explode("word")


def counts(env: cw.Environment, lines: int) -> None:
    numbers = env.read(cw.sequence(lines), uid="numbers")
    timed = numbers.select(ts="value", line=line()).with_timestamps("ts", out_of_orderness="1s")
    words = timed.map_batches(split, "ts long, word string").key_by("word")
    words.window(cw.tumbling("5s")).agg(n=cw.count()).uid("counts").write(cw.discard(), uid="dropped")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--n", type=int, default=6_000_000)
    parser.add_argument("--reps", type=int, default=3)
    wanted = parser.parse_args()

    seconds, cpu, completed = [], [], 0
    with session() as spark:
        for number in range(WARM_UPS + wanted.reps):
            quiet()
            with scratch_folder() as folder:
                env = environment(spark, wanted, folder, checkpoints=True)
                counts(env, wanted.n)
                with Meter() as meter:
                    result = env.execute(f"w2-{number}", restore="fresh")
            note(
                f"  run {number}: {meter.wall:.2f} s, {wanted.n / meter.wall / 1e3:.0f} k lines/s, cpu {meter.cpu:.1f} s"
            )
            if number >= WARM_UPS:
                seconds.append(meter.wall)
                cpu.append(meter.cpu)
                completed = max(completed, result.checkpoints)
    emit(
        "W2",
        "cutwater",
        variant(wanted),
        n=wanted.n,
        rec_per_s=int(wanted.n / statistics.median(seconds)),
        best=int(wanted.n / min(seconds)),
        worst=int(wanted.n / max(seconds)),
        cpu_us_per_rec=statistics.median(cpu) / wanted.n * 1e6,
        ck_completed=completed,
    )


if __name__ == "__main__":
    main()
